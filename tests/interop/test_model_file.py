"""Models as files: what comes back, what is refused, and what a damaged file can do, which is nothing."""

import builtins
import importlib.metadata
import json
import pickle
import warnings
import zipfile
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualnewton as dn
from dualnewton import losses
from dualnewton.files.archive import BadFileError
from dualnewton.interop.labels import are_classes, codes_of, tidy
from dualnewton.interop.model_file import KIND, VERSION, SavedModel
from dualnewton.interop.names import LOSSES, PENALTIES
from dualnewton.interop.specification import Specification
from dualnewton.objective.certificate import Certificate

RNG = np.random.default_rng(0)
PROOF = Certificate(0.5, 0.499999)


def model_for(classes, objective, d=3, **more):
    K = 1 if classes is None or len(classes) == 2 else len(classes)
    proofs = 1 if objective.is_softmax else K
    made = SavedModel(
        coef=RNG.standard_normal((K, d)),
        intercept=RNG.standard_normal(K),
        objective=objective,
        classes=None if classes is None else np.array(classes),
        certificates=(PROOF,) * proofs,
        status=("CONVERGED",) * proofs,
        plan="newton, tau = 3: because",
        n=17,
        command="dualnewton fit 'a b.csv'",
    )
    return replace(made, **more)


MODELS = {
    "two classes": model_for([-1, 1], Specification("logistic", 0.1)),
    "text": model_for(["no", "yes", "ünsicher"], Specification("logistic", 0.1, multiclass="softmax")),
    "against the rest": model_for([0.5, 1.5, 2.5], Specification("hinge", 0.1, "l1", multiclass="ovr")),
    "numbers": model_for(
        None,
        Specification(
            "huber",
            1e-9,
            "elasticnet",
            fit_intercept=False,
            parameters={"delta": 2.5},
            penalty_parameters={"l1_ratio": 0.25},
        ),
    ),
    "named": model_for([0, 1], Specification("smooth_hinge", 2.0), feature_names=("a", "b", "ä"), target="y"),
}


def same(a, b):
    """Whether two models are equal, field by field."""
    return all(
        np.array_equal(x, y) and getattr(x, "dtype", None) == getattr(y, "dtype", None)
        if isinstance(x, np.ndarray)
        else x == y
        for x, y in ((getattr(a, each.name), getattr(b, each.name)) for each in fields(a))
    )


# There and back ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_as_it_was(name, tmp_path):
    MODELS[name].save(tmp_path / "m")
    assert same(SavedModel.load(tmp_path / "m"), MODELS[name])
    assert not same(SavedModel.load(tmp_path / "m"), replace(MODELS[name], n=18))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", [name for name in PENALTIES if name != "group_elastic_net"])
def test_every_objective_can_be_saved(loss, penalty, tmp_path):
    objective = Specification(loss, 0.3, penalty)
    classes = [0, 1] if objective.classifies else None
    model_for(classes, objective).save(tmp_path / "m")
    assert SavedModel.load(tmp_path / "m").objective == objective


def test_a_library_that_is_not_installed_saves_models(monkeypatch):
    # It may be on the path, or in a bundle without the metadata of its packages.
    monkeypatch.setattr(importlib.metadata, "version", lambda name: importlib.metadata.distribution(f"no {name}"))
    assert model_for(None, Specification("squared", 0.3)).library == dn.__version__


def test_the_file_can_be_read_without_the_library(tmp_path):
    MODELS["text"].save(tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m") as archive:
        header = json.loads(archive.read("header.json"))
    assert (header["format"], header["version"]) == (f"dualnewton {KIND}", VERSION)
    assert header["content"]["classes"] == ["no", "yes", "ünsicher"]
    with np.load(tmp_path / "m") as arrays:
        assert arrays["coef"].shape == (3, 3)


# Its use -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_predictions_follow_from_the_margins(name, sparse):
    import scipy.sparse as sp

    model, X = MODELS[name], RNG.standard_normal((9, 3)).astype(np.float32)
    margins = X.astype(float) @ model.coef.T + model.intercept
    found = model.decision_function(sp.csr_array(X) if sparse else X)
    np.testing.assert_allclose(found, margins[:, 0] if len(model.coef) == 1 else margins, rtol=1e-12)
    expected = margins[:, 0]
    if model.classes is not None:
        winner = (margins[:, 0] > 0).astype(int) if len(model.coef) == 1 else margins.argmax(axis=1)
        expected = model.classes[winner]
    predicted = model.predict(X)
    (np.testing.assert_allclose if model.classes is None else np.testing.assert_array_equal)(predicted, expected)
    y = predicted if model.classes is not None else predicted + 1.0
    assert model.score(X, y) == (1.0 if model.classes is not None else pytest.approx(1 - 9 / np.var(y) / 9))


@pytest.mark.parametrize("multiclass", ["softmax", "ovr"])
def test_probabilities_are_the_estimators(multiclass):
    X = RNG.standard_normal((90, 3))
    y = np.where(X[:, 0] > 0.5, 2, np.where(X[:, 1] > 0, 1, 0))
    peer = dn.LogisticRegression(multi_class={"softmax": "multinomial", "ovr": "ovr"}[multiclass]).fit(X, y)
    model = model_for(
        [0, 1, 2], Specification("logistic", 0.1, multiclass=multiclass), coef=peer.coef_, intercept=peer.intercept_
    )
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(X), atol=1e-12)
    far = model.predict_proba(1e6 * X)
    assert np.isfinite(far).all()
    np.testing.assert_allclose(far.sum(axis=1), 1.0)


def test_what_a_model_cannot_do_is_said():
    with pytest.raises(ValueError, match="probabilities belong to the logistic loss, and this model has huber"):
        MODELS["numbers"].predict_proba(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="X must have the 3 features that the model was fitted on, got 4"):
        MODELS["numbers"].predict(np.zeros((1, 4)))
    with pytest.raises(ValueError, match="the target must hold the classes of the model, -1, 1, got 7 as well"):
        MODELS["two classes"].score(np.zeros((2, 3)), [1, 7])
    assert np.isnan(MODELS["numbers"].score(np.zeros((2, 3)), [1.0, 1.0]))


# Labels and words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "kind", "classes"),
    [
        ([1.0, -1.0], "i", True),
        ([True, False], "i", True),
        (["a", "b"], "U", True),
        ([0.5, 1.0], "f", False),
        (np.arange(21.0), "i", False),
        ([1e300, 2.0], "f", False),
    ],
)
def test_labels_are_read_for_what_they_are(y, kind, classes):
    assert tidy(y).dtype.kind == kind
    assert are_classes(tidy(y)) == classes


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30))
def test_codes_undo_classes_however_labels_are_stored(labels):
    classes = np.unique(labels)
    for stored in (np.array(labels), np.array(labels, dtype=float), np.array(labels).astype(str)):
        np.testing.assert_array_equal(classes[codes_of(stored, classes)], labels)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"loss": "logitic"}, "did you mean logistic"),
        ({"loss": 3}, "loss must be one of logistic, "),
        ({"penalty": "lasso"}, "penalty must be one of l2, l1, elasticnet, nonnegative, .*, got 'lasso'"),
        ({"lam": -1.0}, "lam must be a finite number >= 0"),
        (
            {"penalty_parameters": {"l1_ratio": 0.5}},
            "l1_ratio is a parameter of elasticnet, nonnegative, multi_task, not of l2",
        ),
        ({"penalty_parameters": {"l1_ratio": 2.0}, "penalty": "elasticnet"}, "l1_ratio must be a number in"),
        ({"parameters": {"delta": 1.0}}, "delta is a parameter of huber, not of logistic"),
        ({"parameters": {"foo": 1.0}}, "foo is a parameter of no loss"),
        ({"loss": "huber", "parameters": {"delta": -1.0}}, "delta must be"),
        ({"multiclass": "softmx"}, "did you mean softmax"),
        ({"multiclass": "softmax", "loss": "hinge"}, "softmax needs the logistic loss, got hinge: use ovr"),
        ({"multiclass": "ovr", "loss": "squared"}, "multiclass is for losses of classification"),
        ({"fit_intercept": 1}, "fit_intercept must be true or false"),
    ],
)
def test_words_that_mean_nothing_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        Specification(**{"loss": "logistic", "lam": 1.0} | words)


def test_an_objective_makes_its_problems():
    X, y = RNG.standard_normal((6, 2)), np.array([0, 1, 2, 0, 1, 2])
    three = Specification("smooth_hinge", 0.5, parameters={"width": 0.3}, multiclass="ovr").problems(
        X, y, np.arange(3), sample_weight=np.arange(1.0, 7.0)
    )
    assert [problem.y.tolist() for problem in three][1] == [-1, 1, -1, -1, 1, -1]
    assert all(problem.X is three[0].X for problem in three)
    assert three[0].loss == losses.SmoothHinge(0.3)
    assert three[0].c.tolist() == [1, 2, 3, 4, 5, 6]
    (softmax,) = Specification("logistic", 0.5, multiclass="softmax").problems(X, y, np.arange(3))
    assert softmax.loss == losses.Softmax(3)
    (sparse,) = Specification(
        "logistic", 0.5, "elasticnet", penalty_parameters={"l1_ratio": 0.25}, multiclass="softmax"
    ).problems(X, y, np.arange(3))
    W = np.array([[1.0, -2.0], [0.0, 0.0], [3.0, 0.0]])
    assert sparse.lam * sparse.g.value(W) == pytest.approx(0.5 * (0.25 * 6 + 0.75 * 7))
    (positive,) = Specification("squared", 0.5, "nonnegative", penalty_parameters={"l1_ratio": 0.25}).problems(
        X, y.astype(float)
    )
    w = np.array([1.0, 2.0])
    assert positive.lam * positive.regularizer.value(w) == pytest.approx(0.5 * (0.25 * 3 + 0.75 * 2.5))
    assert positive.regularizer.value(-w) == np.inf


# Earlier files -----------------------------------------------------------------------------------------------------------


def of_version_1(members, **words):
    """The same file as version 1 of the format had it."""
    header = json.loads(members["header.json"]) | {"version": 1}
    content = header["content"]
    kept = ("loss", "lam", "penalty", "fit_intercept", "parameters", "multiclass")
    ratio = {"l2": 0.0, "l1": 1.0}.get(content["objective"]["penalty"])
    ratio = content["objective"]["penalty_parameters"]["l1_ratio"] if ratio is None else ratio
    content["objective"] = {"l1_ratio": ratio} | {key: content["objective"][key] for key in kept} | words
    del content["scale"], content["estimator"], content["offset"]
    return members | {"header.json": json.dumps(header).encode()}


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_version_1_is_the_same_model(name, tmp_path):
    MODELS[name].save(tmp_path / "m")
    path = zipped(tmp_path / "old", of_version_1(members_of(tmp_path / "m")))
    assert same(SavedModel.load(path), MODELS[name])
    assert same(dn.load(path), MODELS[name])
    bad = zipped(tmp_path / "bad", of_version_1(members_of(tmp_path / "m"), loss="logitic"))
    with pytest.raises(BadFileError, match=r"is damaged: loss must be one of logistic, .* did you mean logistic"):
        SavedModel.load(bad)


# Wrong files -------------------------------------------------------------------------------------------------------------


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def zipped(path, members):
    """An archive with right checksums, whatever is in it."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in members.items():
            archive.writestr(zipfile.ZipInfo(name), raw)
    return path


def with_content(members, **changes):
    header = json.loads(members["header.json"])
    header["content"] |= changes
    return members | {"header.json": json.dumps(header).encode()}


CHANGED = {
    "n": (0, "n must be a whole number >= 1"),
    "d": (4, "d must be the number of columns of coef, 3, got 4"),
    "classes": ([1, -1], "classes must be in order"),
    "status": (["DONE"], "status must be one of CONVERGED"),
    "plan": (None, "plan must be text"),
    "certificates": ([{"primal": 1.0}], "certificates must have exactly the fields primal, dual"),
    "feature_names": (["a", "b"], "must have 3 feature names, got 2"),
    "created": ("yesterday", "created must be a date"),
    "target": (7, "target must be text"),
    "more": (1, "a field 'more' that is unknown to this version"),
    "objective": ({"loss": "logistic"}, "objective must have exactly the fields"),
}


@pytest.mark.parametrize("field", CHANGED)
def test_a_field_that_is_wrong_is_named(field, tmp_path):
    value, message = CHANGED[field]
    MODELS["two classes"].save(tmp_path / "m")
    path = zipped(tmp_path / "wrong", with_content(members_of(tmp_path / "m"), **{field: value}))
    with pytest.raises(BadFileError, match=message) as refused:
        SavedModel.load(path)
    assert "is damaged" in str(refused.value)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([0, 1, 2], "must have 3 rows of coef, got 1"),
        ([0], "two labels at least"),
        ([0, "1"], "of one kind"),
        ([True, False], "of one kind"),
        (None, "classes must be there exactly for a loss of classification"),
        ([0, 10**30], "integers of 64 bits"),
        ([0.0, float("inf")], "finite number"),
    ],
)
def test_classes_that_do_not_belong_to_the_model(classes, message, tmp_path):
    MODELS["two classes"].save(tmp_path / "m")
    path = zipped(tmp_path / "wrong", with_content(members_of(tmp_path / "m"), classes=classes))
    with pytest.raises(BadFileError, match=message):
        SavedModel.load(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"coef": np.zeros(3)},
        {"coef": np.zeros((1, 3), dtype=np.float32)},
        {"coef": np.full((1, 3), np.nan)},
        {"coef": np.zeros((1, 0))},
        {"intercept": np.zeros(2)},
        {"certificates": (PROOF, PROOF)},
        {"status": ()},
        {"feature_names": ("a",)},
    ],
)
def test_parts_that_do_not_belong_together_are_refused(changes):
    with pytest.raises(ValueError, match="must"):
        replace(MODELS["two classes"], **changes)


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="finite"):
        replace(MODELS["two classes"], certificates=(Certificate(np.inf, 0.0),)).save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_newer_file_says_both_versions(tmp_path):
    MODELS["numbers"].save(tmp_path / "m")
    members = members_of(tmp_path / "m")
    header = json.loads(members["header.json"]) | {"version": VERSION + 1}
    path = zipped(tmp_path / "newer", members | {"header.json": json.dumps(header).encode()})
    with pytest.raises(BadFileError, match=f"of version {VERSION + 1}, this library reads versions up to {VERSION}"):
        SavedModel.load(path)


# Fuzz --------------------------------------------------------------------------------------------------------------------


def mutated(raw, rng):
    """Change bytes, take some away, put some in, repeat some, or cut the end off."""
    raw = bytearray(raw)
    for _ in range(rng.integers(1, 4)):
        at, size = int(rng.integers(0, max(1, len(raw)))), int(rng.integers(1, 9))
        kind = rng.integers(0, 6)
        if kind == 0:
            raw[at : at + 1] = bytes([int(rng.integers(0, 256))])
        elif kind == 1:
            raw[at : at + size] = rng.bytes(size)
        elif kind == 2:
            del raw[at : at + size]
        elif kind == 3:
            raw[at:at] = rng.bytes(size)
        elif kind == 4:
            raw[at:at] = raw[at : at + 40]
        elif len(raw) > 2 and at:
            del raw[at:]
    return bytes(raw)


JUNK = [
    None,
    True,
    0,
    -1,
    1e308,
    10**400,
    "",
    "x",
    [],
    {},
    [[]],
    {"loss": []},
    [None],
    float("nan"),
    ["a", 1],
    "__import__('os')",
]


def changed(value, rng):
    """Change a value of the header somewhere inside, or an entry of it."""
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = keys[int(rng.integers(len(keys)))]
        value = dict(value) if isinstance(value, dict) else list(value)
        if rng.random() < 0.15:
            del value[key]
        else:
            value[key] = changed(value[key], rng)
        return value
    return JUNK[int(rng.integers(len(JUNK)))]


def header_changed(members, rng):
    header = changed(json.loads(members["header.json"]), rng)
    return members | {"header.json": json.dumps(header).encode()}


def member_mutated(members, rng):
    name = list(members)[int(rng.integers(len(members)))]
    # The first bytes of an array say its shape and type.
    end = 140 if name.endswith(".npy") and rng.random() < 0.7 else None
    raw = members[name]
    return members | {name: mutated(raw[:end], rng) + (b"" if end is None else raw[end:])}


@pytest.fixture
def nothing_runs(monkeypatch):
    """Have a loader that would run what a file says fail in a way that nobody catches."""

    def run(*_, **__):
        raise SystemExit("code from a file was about to run")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, run)
    monkeypatch.setattr(builtins, "eval", run)


def outcome(path):
    """Return the model of a damaged file, or None where it is refused in a line; anything else is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return SavedModel.load(path)
        except ValueError as error:
            message = str(error)
    assert message
    assert "\n" not in message
    return None


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_bytes_that_changed_are_noticed_or_do_not_matter(name, tmp_path, nothing_runs):
    MODELS[name].save(tmp_path / "m")
    raw, rng, refused = (tmp_path / "m").read_bytes(), np.random.default_rng(len(name)), 0
    for _ in range(600):
        (tmp_path / "b").write_bytes(mutated(raw, rng))
        found = outcome(tmp_path / "b")
        assert found is None or same(found, MODELS[name])
        refused += found is None
    assert refused > 400


@pytest.mark.slow
@pytest.mark.parametrize("how", [header_changed, member_mutated])
@pytest.mark.parametrize("name", MODELS)
def test_contents_that_changed_under_right_checksums_are_refused_or_make_a_model(how, name, tmp_path, nothing_runs):
    MODELS[name].save(tmp_path / "m")
    members, rng, refused = members_of(tmp_path / "m"), np.random.default_rng(len(name)), 0
    for _ in range(400):
        found = outcome(zipped(tmp_path / "b", how(members, rng)))
        refused += found is None
        if found is not None:  # whatever it is now, it can be used and saved
            assert np.isfinite(found.decision_function(np.zeros((2, found.d)))).all()
            found.save(tmp_path / "again")
            assert same(SavedModel.load(tmp_path / "again"), found)
    assert refused > 200
