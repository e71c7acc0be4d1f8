"""A run that goes on from its checkpoint ends as if it had never stopped, bit for bit; a file that is not its own is refused."""

import io
import json
import zipfile
from dataclasses import is_dataclass, replace

import numpy as np
import pytest

import dualnewton as dn
from checkpoint_cases import CASES, SEED, Case, bits, one, several
from dualnewton import losses, regularizers, samplings
from dualnewton.files import archive as _archive
from dualnewton.objective.certificates import certify_duals
from dualnewton.planning.tuning import DEFAULT
from dualnewton.run import checkpoint
from dualnewton.run.loop import Run
from dualnewton.run.methods import make_method
from dualnewton.run.snapshot import decode
from dualnewton.solvers.protocol import Request

logistic = losses.Logistic()


class Killed(BaseException):
    """What no code catches: the run is gone."""


def often(path):
    """A checkpoint that is written after every turn."""
    return dn.Checkpoint(path, seconds=0.0, spacing=0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.checkpoint"


@pytest.fixture
def deadly(monkeypatch):
    """Each run dies right after it has saved its state; returns the number of deaths so far."""
    save, deaths = checkpoint.Keeper.save, []

    def save_and_die(self, *state):
        save(self, *state)
        if not state[-1]:  # finished
            deaths.append(1)
            raise Killed

    monkeypatch.setattr(checkpoint.Keeper, "save", save_and_die)
    return deaths


def persist(run, **more):
    """Start the run again and again until it ends."""
    while True:
        try:
            return run(**more)
        except Killed:
            pass


# The same bits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_that_dies_after_every_turn_ends_with_the_same_bits(case, path, request):
    whole = bits(case.solve())
    assert bits(case.solve(checkpoint=often(path))) == whole  # and it is not in the way of a run that lives
    path.unlink(missing_ok=True)
    deaths = request.getfixturevalue("deadly")
    # Each time from the data alone: nothing is left over from the run before.
    assert bits(persist(case.solve, checkpoint=often(path))) == whole
    assert len(deaths) >= 1


def test_the_cases_reach_what_they_are_named_for():
    named = {case.name: case for case in CASES}
    for name in ("another method", "another method, kinks"):
        (result,) = named[name].solve()
        assert result.plan.is_primal
        assert result.plan.before.method == "sdna"
    for name in ("compiled models", "newton, models", "newton by float32 rows"):
        assert len({result.n_epochs for result in named[name].solve()}) > 1  # so models leave on the way


def test_warm_starts_and_generators_of_every_kind_go_on(path, deadly):
    problems = one(logistic)
    near = dn.solve(problems[0], method="sdna", tau=5, max_epochs=2, random_state=0)
    for start in (near, near.alpha):
        for kind in (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64):
            used, again = (np.random.Generator(kind(8)) for _ in range(2))
            for rng in (used, again):
                rng.integers(9, size=3, dtype=np.uint32)  # leaves half a word behind
            settings = {"method": "sdna", "tau": 5, "max_epochs": 9, "warm_start": start}
            whole = dn.solve(problems[0], random_state=used, **settings)
            state = again.bit_generator.state

            def run(state=state, again=again, settings=settings):
                again.bit_generator.state = state
                return dn.solve(problems[0], random_state=again, checkpoint=often(path), **settings)

            assert bits([persist(run)]) == bits([whole])
            assert again.random() == used.random()  # the user's generator, too, is where it would be
            path.unlink()
    assert len(deadly) > 20


def test_a_run_without_a_seed_goes_on_as_it_began(path, deadly):
    case = Case("", lambda: one(logistic), {"method": "sdna", "tau": 5, "max_epochs": 6, "random_state": None})
    with pytest.raises(Killed):
        case.solve(checkpoint=often(path))
    begun = path.read_bytes()
    first = bits(persist(case.solve, checkpoint=often(path)))
    path.write_bytes(begun)
    assert bits(persist(case.solve, checkpoint=often(path))) == first
    assert len(deadly) > 2


def test_threads_limits_and_the_callback_may_be_others(path, deadly):
    (problem,) = one(logistic, n=200)
    settings = {"method": "sdna", "tau": 5, "tol": 1e-7, "random_state": SEED}
    whole = bits([dn.solve(problem, **settings)])
    heard = []
    with pytest.raises(Killed):
        dn.solve(problem, checkpoint=often(path), **settings)
    limits = ({"max_epochs": 3}, {"time_limit": 0.0}, {"n_threads": 2}, {"callback": heard.append}, {"max_epochs": 0})
    for _ in range(3):
        for limit in limits:
            before = path.read_bytes()
            try:
                result = dn.solve(problem, checkpoint=often(path), **settings, **limit)
            except Killed:
                continue
            assert result.status in (dn.Status.EPOCH_LIMIT, dn.Status.TIME_LIMIT)
            assert path.read_bytes() == before  # a turn that a limit has cut short is no state of the run
    assert bits([persist(dn.solve, problem=problem, checkpoint=often(path), **settings)]) == whole
    assert heard


@pytest.mark.parametrize("tau", [1, 4])
def test_a_deadline_that_is_far_away_changes_no_bit(tau):
    (problem,) = one(logistic, n=40_000, d=6)
    start = [(problem, certify_duals([problem], [problem.no_dual()])[0])]
    told, request = [], Request("sdna", tau, None, 1e-6, None, 1, None, tuning=DEFAULT)
    for deadline in (np.inf, 1e18):
        method = make_method(dn.plan(problem, method="sdna", tau=tau), start, request, Run)
        rng = np.random.default_rng(0)
        told.append([(method.step(rng, deadline, np.inf), method.residual(0).hex()) for _ in range(4)])
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "name",
    [
        "compiled",
        "newton",
        "hinge, smoothed",
        "epsilon, smoothed models",
        "newton, models",
        "joint scale by rounds",
        "no penalty, models",
    ],
)
def test_a_run_that_ended_by_a_limit_goes_on_under_a_larger_one(name, path):
    case = next(case for case in CASES if case.name == name)
    asked = {**case.settings, "max_epochs": 200}
    whole = replace(case, settings=asked).solve()
    most = int(max(result.n_epochs for result in whole))
    for limit in range(0, most + 1, max(1, most // 12)):
        results = replace(case, settings={**asked, "max_epochs": limit}).solve(checkpoint=often(path))
        assert any(result.status is dn.Status.EPOCH_LIMIT for result in results) or bits(results) == bits(whole)
    assert bits(replace(case, settings=asked).solve(checkpoint=often(path))) == bits(whole)


def test_what_a_callback_or_ctrl_c_has_ended_goes_on_as_if_it_had_not(path):
    problems = several(logistic)
    settings = {"method": "sdna", "tau": 5, "tol": 1e-6, "random_state": SEED}
    whole = bits(dn.solve_many(problems, **settings))

    def stop_the_second(progress):
        return progress.model == 1 and progress.epoch >= 2.0

    def interrupt(progress):
        if progress.epoch >= 4.0:
            raise KeyboardInterrupt
        return False

    stopped = dn.solve_many(problems, callback=stop_the_second, checkpoint=often(path), **settings)
    assert stopped[1].status is dn.Status.STOPPED_BY_CALLBACK
    assert bits(stopped) != whole
    interrupted = dn.solve_many(problems, callback=interrupt, checkpoint=often(path), **settings)
    assert interrupted[1].status is dn.Status.INTERRUPTED
    assert bits(dn.solve_many(problems, checkpoint=often(path), **settings)) == whole


def test_a_user_who_ends_a_stage_does_not_spoil_the_checkpoint(path):
    problems = several(losses.Hinge(), (0.1, 0.01), n=40, d=4)
    settings = {"method": "newton", "tol": 1e-6, "random_state": SEED}
    whole = bits(dn.solve_many(problems, **settings))
    heard = []

    def stop(progress):
        heard.append(progress)
        return progress.model == 0 and len(heard) > 5

    stopped = dn.solve_many(problems, callback=stop, checkpoint=often(path), **settings)
    assert stopped[0].status is dn.Status.STOPPED_BY_CALLBACK
    assert bits(dn.solve_many(problems, checkpoint=often(path), **settings)) == whole


# The file --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [logistic, losses.Hinge()], ids=["smooth", "kinked"])
def test_a_finished_run_is_returned_at_once_and_the_file_stays(path, loss, monkeypatch):
    problems = one(loss, n=40, d=4)
    settings = {"tol": 1e-6, "random_state": SEED}
    whole = dn.solve(problems[0], checkpoint=path, **settings)  # too short a run to be written on its way
    written = path.read_bytes()
    monkeypatch.setattr(Run, "step", None)  # its certificate is recomputed, and no step is made
    heard = []
    again = dn.solve(problems[0], checkpoint=path, callback=heard.append, max_epochs=1, **settings)
    assert bits([again]) == bits([whole])
    assert again.trace.seconds.tolist() == whole.trace.seconds.tolist()
    assert path.read_bytes() == written
    assert heard == []
    header = json.loads(zipfile.ZipFile(path).read("header.json"))
    assert header["format"] == "dualnewton checkpoint"
    assert header["content"]["finished"] is True
    assert header["content"]["epochs"] == whole.n_epochs
    assert header["content"]["run"]["tol"] == "1e-06"


def test_each_certificate_is_recorded_once_and_time_goes_on(path, deadly):
    heard = []
    result = persist(
        dn.solve, problem=one(logistic)[0], method="sdna", tau=5, max_epochs=6, random_state=0, callback=heard.append,
        checkpoint=often(path),
    )  # fmt: skip
    assert [progress.epoch for progress in heard] == result.trace.epoch.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert (np.diff(result.trace.seconds) > 0.0).all()


def test_writes_keep_their_distance(path, monkeypatch):
    clock, writes = [0.0], []
    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: clock[0])

    def write(*_):
        writes.append(clock[0])
        clock[0] += 0.05

    monkeypatch.setattr(checkpoint._archive, "write", write)
    keeper = checkpoint.keeper_of(path, dict, np.random.default_rng(0))
    for now in np.arange(0.0, 5.0, 0.03):
        clock[0] = max(clock[0], now)
        if keeper.is_due([None, dn.Status.CONVERGED]):
            keeper.save(None, 0.0)
    gaps = np.diff(writes)
    assert writes[0] == pytest.approx(0.25, abs=0.03)
    assert np.all(gaps > checkpoint.SPACING * 0.05)  # a twentieth of the time, though 0.25 s would have been allowed
    assert np.all(gaps < checkpoint.SPACING * 0.05 + 0.1)
    clock[0] += 100.0
    assert keeper.is_due([None])
    assert not keeper.is_due([None, dn.Status.STOPPED_BY_CALLBACK])
    assert keeper.is_due([dn.Status.CONVERGED])  # the end is always written
    assert checkpoint.keeper_of(None, dict, np.random.default_rng(0)) is None


CHANGES = {
    "tol": ({"tol": 1e-8}, "written with tol=1e-06, this run has tol=1e-08"),
    "method": ({"method": "sdca"}, "method='sdna', this run has method='sdca'"),
    "tau": ({"tau": 6}, "tau=5, this run has tau=6"),
    "seed": ({"random_state": 4}, "random_state=PCG64 .*, this run has random_state=PCG64 "),
    "no seed": ({"random_state": None}, "random_state=PCG64 .*, this run has random_state=None"),
    "warm start": ({"warm_start": [np.zeros(60)]}, "warm_start=None, this run has warm_start=60 float64 "),
    "sampling": ({"tau": "auto", "sampling": samplings.Nice(60, 5)}, r"tau=5, sampling=None, .*Nice\(n=60, tau=5\)"),
}
PROBLEMS = {
    "X": (lambda: one(logistic, seed=1), "X=60x6 float64 .*, this run has X=60x6 float64 "),
    "one entry of X": (lambda: nudged(one(logistic)), "X=60x6 float64 .*, this run has X=60x6 float64 "),
    "dtype": (lambda: one(logistic, dtype=np.float32), "this run has X=60x6 float32"),
    "storage": (lambda: one(logistic, sparse=0.9), "this run has X=60x6 float64 csr"),
    "lam": (lambda: one(logistic, lam=0.1), "lam=0.005, this run has lam=0.1"),
    "loss": (
        lambda: one(losses.SmoothHinge(0.5)),
        r"loss=.*Logistic\(\), this run has loss=.*SmoothHinge\(width=0.5\)",
    ),
    "penalty": (lambda: one(logistic, regularizer=regularizers.Box(-1.0, 2.0)), r"regularizer=.*L2\(.*Box\(.*-1.0"),
    "intercept": (lambda: one(logistic, fit_intercept=True), "fit_intercept=False, this run has fit_intercept=True"),
    "weights": (
        lambda: one(logistic, sample_weight=np.ones(60)),
        "sample_weight=None, this run has sample_weight=60 fl",
    ),
    "offset": (lambda: one(logistic, offset=np.ones(60)), "offset=None, this run has offset=60 float64"),
    "number": (lambda: 2 * one(logistic), "problems=1 Problem, .*, this run has problems=2 Problem"),
}


def nudged(problems):
    X = problems[0].X.copy()
    X[59, 5] = np.nextafter(X[59, 5], 1.0)
    return [replace(problems[0], X=X)]


BEGUN = Case("", lambda: one(logistic), {"method": "sdna", "tau": 5, "tol": 1e-6, "max_epochs": 9})


@pytest.fixture
def begun(path):
    BEGUN.solve(checkpoint=often(path))
    return path.read_bytes()


@pytest.mark.parametrize("change", CHANGES)
def test_another_run_is_refused_by_what_differs(change, path, begun):
    settings, words = CHANGES[change]
    with pytest.raises(ValueError, match=words) as caught:
        BEGUN.solve(checkpoint=path, **settings)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == begun


@pytest.mark.parametrize("change", PROBLEMS)
def test_another_problem_is_refused_by_what_differs(change, path, begun):
    make, words = PROBLEMS[change]
    with pytest.raises(ValueError, match=words):
        BEGUN.solve(make(), checkpoint=path)
    assert path.read_bytes() == begun


def test_what_objects_have_found_out_about_themselves_does_not_count():
    fresh, asked = samplings.Serial(4, np.full(4, 0.25)), samplings.Serial(4, np.full(4, 0.25))
    assert asked.p.size == 4
    asked.draw(np.random.default_rng(0), 3)
    assert checkpoint.described(fresh) == checkpoint.described(asked)
    assert checkpoint.described(fresh) != checkpoint.described(samplings.Serial(4, np.array([0.1, 0.2, 0.3, 0.4])))
    long = samplings.Explicit(60, [[k] for k in range(60)], np.full(60, 1 / 60))
    assert len(checkpoint.described(long)) < 250


def test_the_data_are_hashed_by_parts_and_where_they_lie(tmp_path, monkeypatch):
    X = np.random.default_rng(0).standard_normal((1000, 7))
    np.save(tmp_path / "X.npy", X)
    whole = checkpoint.described(X)
    monkeypatch.setattr(checkpoint, "HASHED", 999)
    on_disk = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert checkpoint.described(on_disk) == whole
    assert checkpoint.described(np.repeat(X, 2, axis=1)[:, ::2]) == whole
    assert max(part.nbytes for part in checkpoint._octets(on_disk)) <= 999
    path = tmp_path / "run.checkpoint"
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    runs = [dn.Problem(data, y, logistic, lam=1e-4) for data in (X, on_disk)]
    settings = {"method": "ihs", "tol": 1e-9, "random_state": 0}
    assert bits([dn.solve(runs[0], checkpoint=path, **settings)]) == bits(
        [dn.solve(runs[1], checkpoint=path, **settings)]
    )


@pytest.mark.parametrize("bad", [3, b"", "", ["a"]], ids=str)
def test_a_checkpoint_must_be_a_path(bad):
    with pytest.raises(ValueError, match="checkpoint must be None, the path of a file or a Checkpoint, got"):
        BEGUN.solve(checkpoint=bad)


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "step", None)  # its certificate is recomputed, and no step is made
    with pytest.raises(ValueError, match=r"checkpoint must be a file in a folder that exists, got .*nowhere"):
        BEGUN.solve(checkpoint=tmp_path / "nowhere" / "run")
    with pytest.raises(OSError):
        BEGUN.solve(checkpoint=tmp_path)
    with pytest.raises(ValueError, match="seconds must be"):
        dn.Checkpoint(tmp_path / "run", seconds=-1.0)


def test_a_full_disk_ends_the_run_and_leaves_the_last_state(path, begun, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    settings = {**BEGUN.settings, "max_epochs": 30}
    whole = bits(replace(BEGUN, settings=settings).solve())
    with monkeypatch.context() as patches:
        patches.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            replace(BEGUN, settings=settings).solve(checkpoint=often(path))
    assert path.read_bytes() == begun
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert bits(replace(BEGUN, settings=settings).solve(checkpoint=path)) == whole


# Damage ----------------------------------------------------------------------------------------------------------------


def test_files_that_are_no_checkpoints_are_refused_and_left_alone(path, begun, tmp_path):
    model = tmp_path / "model"
    _archive.write(model, "model", 1, {}, {})
    newer = tmp_path / "newer"
    _archive.write(newer, "checkpoint", 99, {}, {})
    empty = tmp_path / "empty"
    _archive.write(empty, "checkpoint", 1, {}, {})
    others = {
        b"": "is not a dualnewton checkpoint, or was cut short",
        b"some text\n": "is not a dualnewton checkpoint, or was cut short",
        begun[:-1]: "cut short|damaged",
        begun[: len(begun) // 2]: "is not a dualnewton checkpoint, or was cut short",
        model.read_bytes(): "is not a dualnewton checkpoint but says it is 'dualnewton model'",
        newer.read_bytes(): f"of version 99, this library reads versions up to {checkpoint.VERSION}",
        empty.read_bytes(): "is a damaged checkpoint",
    }
    for content, words in others.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            BEGUN.solve(checkpoint=path)
        assert path.read_bytes() == content


def mutations(content, rng, count):
    """Flip bits, cut, insert, repeat and swap."""
    size = len(content)
    for _ in range(count):
        a, b = sorted(int(place) for place in rng.integers(0, size + 1, 2))
        c = min(size, b + int(rng.integers(1, 64)))
        changed = bytearray(content)
        match int(rng.integers(6)):
            case 0:
                changed[min(a, size - 1)] ^= 1 << int(rng.integers(8))
            case 1:
                del changed[a:]
            case 2:
                changed[a:a] = rng.bytes(int(rng.integers(1, 9)))
            case 3:
                changed[a:c] = content[b:c] + content[a:b]
            case 4:
                del changed[a : min(b, a + 16)]
            case 5:
                changed[a : a + 8] = bytes(8) if rng.random() < 0.5 else b"\xff" * 8
        yield bytes(changed)


def test_thousands_of_damaged_files_are_refused_in_a_line(path, begun):
    identity = json.loads(zipfile.ZipFile(io.BytesIO(begun)).read("header.json"))["content"]["run"]
    assert (
        sum(is_refused(path, changed, identity) for changed in mutations(begun, np.random.default_rng(0), 2000)) > 1900
    )


def test_damage_that_the_checksums_of_the_archive_do_not_see_is_seen(path, begun):
    archive = zipfile.ZipFile(io.BytesIO(begun))
    members = {name: archive.read(name) for name in archive.namelist()}
    identity = json.loads(members["header.json"])["content"]["run"]
    rng = np.random.default_rng(1)
    for name in sorted(members):
        for changed in mutations(members[name], rng, 60):
            file = io.BytesIO()
            with zipfile.ZipFile(file, "w") as other:
                for each, content in members.items():
                    other.writestr(each, changed if each == name else content)
            assert is_refused(path, file.getvalue(), identity) or name == "header.json" or changed == members[name]


def is_refused(path, content, identity):
    """Whether a run refuses the file, by the right kind of error; what it does not refuse leads to the same bits."""
    path.write_bytes(content)
    try:
        assert checkpoint.keeper_of(path, lambda: identity, np.random.default_rng(0)).found is not None
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return True
    # A date, a byte between the members or in what is written for people: all that counts is there.
    assert bits(BEGUN.solve(checkpoint=path)) == bits(BEGUN.solve())
    return False


def test_a_forged_state_makes_nothing_but_objects_of_a_run_or_is_refused(path, begun):
    _, arrays = _archive.read(path, "checkpoint", checkpoint.VERSION)
    tree = arrays.pop("state").tobytes()
    blocks = [arrays[str(k)] for k in range(len(arrays))]
    rng = np.random.default_rng(2)
    read = 0
    for changed in [tree, *mutations(tree, rng, 1500)]:
        try:
            state = decode(json.loads(changed), blocks)
            read += 1
        except ValueError:  # of JSON, too
            continue
        assert set(classes_of(state)) <= {"RunState", "Progress", "Plan", "Certificate", "CertifiedPair",
                                          "SwitchingState", "SolverState"}  # fmt: skip
    assert read >= 1


def classes_of(state):
    """Yield the names of the classes in a state."""
    if is_dataclass(state):
        yield type(state).__name__
        state = vars(state)
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, tuple) else ()
    for part in parts:
        yield from classes_of(part)
