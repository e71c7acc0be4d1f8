"""Compiled kernels on disk: a later process compiles nothing, and the user is told once when something is compiled."""

import errno
import operator
import os
import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import numba
import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import kernels
from dualnewton.kernels import _compiler, losses, sets
from dualnewton.kernels.models import Kernel, _kind
from dualnewton.run import warm_up
from tables import LOSSES, NON_SMOOTH, SEVERAL_COLUMNS, WITHOUT_GAMMA

FITS = """
import numba, numpy as np, scipy.sparse as sp, dualnewton as dn
from numba.core import event

class Seen(list, event.Listener):
    def on_start(self, event):
        self.append(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event):
        pass

seen = Seen()
event.register("numba:compile", seen)
rng = np.random.default_rng(0)
X = sp.random_array((2000, 300), density=0.05, rng=rng, format="csr")
z = X @ rng.standard_normal(300)
fits = dn.LinearSVC(loss="hinge").fit(X, z > 0.0), dn.Ridge().fit(X, z), dn.Lasso(alpha=0.01).fit(X, z)
print(len(seen), *[float(np.abs(fit.coef_).sum()).hex() for fit in fits])
"""


def run(code, cache):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    count, *models = done.stdout.split()
    return int(count), models, done.stderr


def test_the_first_process_compiles_and_says_so_once_and_a_later_one_loads_all_of_it(tmp_path):
    compiled, models, said = run(FITS, tmp_path)
    assert compiled > 3  # several kernels and functions, and one line
    assert said == (
        "dualnewton: compiling kernels for CSR float64 data (once per installation; `dualnewton warm-up` does it ahead)\n"
    )
    assert run(FITS, tmp_path) == (0, models, "")


def row_scores():
    """Scores of two rows by a kernel that this process has not compiled."""
    kernel = Kernel(import_module("dualnewton.kernels.passes")._row_scores)
    parts = np.array([0, 2]), np.zeros(1, np.int64)
    arguments = (
        np.eye(2),
        np.empty(0, np.uint64),
        np.empty(0, np.int64),
        *parts,
        np.array([1.0, 4.0]),
        out := np.empty(2),
    )
    kernel.prepare(*arguments)
    kernel(*arguments)
    return out.tolist()


def test_without_a_folder_that_can_be_written_a_kernel_is_compiled_and_the_line_says_why(monkeypatch, capsys):
    def no_folder(py_func):
        raise RuntimeError("no locator available")

    monkeypatch.setattr(_compiler, "KernelCache", no_folder)
    monkeypatch.setattr(_compiler, "SO_FAR", _compiler.SoFar())
    assert row_scores() == [1.0, 4.0]
    said = capsys.readouterr().err
    assert said.startswith("dualnewton: compiling kernels for dense float64 data (in every process, since no folder")
    assert said.count("\n") == 1
    assert _compiler.cache_folder() is None


@pytest.mark.parametrize("changed", ["kernels/rows.py", "losses/smooth.py"])
def test_a_change_of_any_source_that_kernels_inline_makes_the_cache_stale(tmp_path, monkeypatch, changed):
    for folder in _compiler.SOURCES:
        (tmp_path / folder).mkdir()
        for path in (_compiler.PACKAGE / folder).glob("*.py"):
            (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(_compiler, "PACKAGE", tmp_path)
    stamp = _compiler.source_stamp.__wrapped__
    assert stamp() == stamp() == _compiler.source_stamp()
    with open(tmp_path / changed, "a", encoding="utf-8") as file:
        file.write("#")
    assert stamp() != _compiler.source_stamp()


# What ``dualnewton warm-up`` compiles ------------------------------------------------------------------------------------


def all_kernels():
    modules = [import_module(f"{kernels.__name__}.{module.name}") for module in iter_modules(kernels.__path__)]
    return {value for module in modules for value in vars(module).values() if isinstance(value, Kernel)}


@pytest.fixture
def prepared(monkeypatch):
    """The kernels and functions of sets that are prepared in a test, each with its types of arguments."""
    seen, original, compiled = set(), Kernel.prepare, sets._compiled

    def prepare(self, *args):
        seen.add((self, tuple(map(_kind, args))))
        original(self, *args)

    def functions(*dtypes):
        seen.add(dtypes)
        return compiled(*dtypes)

    monkeypatch.setattr(Kernel, "prepare", prepare)
    monkeypatch.setattr(sets, "_compiled", functions)
    return seen


@pytest.fixture
def ahead(monkeypatch):
    """The kernels and functions of sets that the command prepares, which are not compiled here."""
    seen, nothing = set(), sets.SetFunctions(*[np.uintp(0)] * 3)
    # Kernels that do not run leave their outputs uninitialised, whose sums may overflow.
    with monkeypatch.context() as patched, np.errstate(all="ignore"):
        patched.setattr(Kernel, "prepare", lambda self, *args: seen.add((self, tuple(map(_kind, args)))))
        patched.setattr(Kernel, "__call__", lambda self, *args: None)  # noqa: ARG005
        patched.setattr(sets, "_compiled", lambda *dtypes: seen.add(dtypes) or nothing)
        for step in ("_pointers", "_row_functions"):
            patched.setattr(warm_up, step, lambda _: None)
        for step in warm_up.steps():
            step.prepare()
    return seen


def test_the_command_prepares_every_kernel(ahead):
    assert {kernel for kernel, *_ in ahead if isinstance(kernel, Kernel)} == all_kernels()
    assert (
        len([kinds for kinds in ahead if not isinstance(kinds[0], Kernel)]) == 6
    )  # dense, for one model and several, and CSR, in two precisions


def test_the_command_compiles_every_loss_that_is_kept_on_disk():
    assert {type(loss) for loss in (*warm_up.SMOOTH, *warm_up.BY_ADDRESS)} == set(losses._FIELDS)
    own = {type(loss) for loss in (*LOSSES, *NON_SMOOTH, *WITHOUT_GAMMA, *SEVERAL_COLUMNS)}
    listed = *warm_up.SMOOTH, *warm_up.BY_ADDRESS, *warm_up.OTHERS, *warm_up.OF_COLUMNS
    assert {type(loss) for loss in listed} == own


@pytest.mark.parametrize(("storage", "dtype"), [("csr", "float64"), ("dense", "float32")])
def test_fits_prepare_nothing_that_the_command_does_not(ahead, prepared, storage, dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 120)) * (rng.random((1500, 120)) < 0.2)
    X = sp.csr_array(X.astype(dtype)) if storage == "csr" else X.astype(dtype)
    z = X @ rng.standard_normal((120, 3)) + rng.standard_normal((1500, 3))
    for estimator in (
        dn.LogisticRegression(),
        dn.LogisticRegression(solver="sdna", n_jobs=2),
        dn.LinearSVC(loss="hinge"),
        dn.LinearSVC(loss="hinge", solver="sdna"),
    ):
        estimator.fit(X, z[:, 0] > 0.0)
    for estimator in (dn.Ridge(), dn.Lasso(alpha=0.01), dn.LinearSVR(tol=1e-2), dn.ElasticNetCV(cv=2, alphas=5)):
        estimator.fit(X, z[:, 0])
    for estimator in (dn.MultiTaskLasso(alpha=0.01), dn.MultiTaskLassoCV(cv=2, alphas=5)):
        estimator.fit(X, z)
    assert len(prepared) > 3
    assert prepared <= ahead


def test_a_damaged_file_of_the_cache_counts_as_absent_and_is_written_again(tmp_path):
    def files():
        return _compiler.KernelFiles(str(tmp_path), "kernel", "stamp")

    files().save("one", [1.0])
    files().save("two", [2.0])
    assert (files().load("one"), files().load("two")) == ([1.0], [2.0])
    for path in tmp_path.iterdir():
        whole = path.read_bytes()
        for damaged in (whole[: len(whole) // 2], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
            path.write_bytes(damaged)
            assert files().load("one") in ([1.0], None)
            assert files().load("two") in ([2.0], None)
        files().save("one", [1.0])
        files().save("two", [2.0])
        assert (files().load("one"), files().load("two")) == ([1.0], [2.0])


def test_two_processes_that_compile_for_different_types_use_different_files(tmp_path, monkeypatch):
    first, second = (_compiler.KernelFiles(str(tmp_path), "kernel", "stamp") for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(second, "_load_index", dict)  # read before the first one has written
        first.save("one", [1.0])
        second.save("two", [2.0])
    assert (first.load("one"), first.load("two")) == (None, [2.0])


def test_a_kernel_that_cannot_be_stored_is_used_all_the_same(monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_compiler.KernelFiles, "load", lambda *_: None)
    monkeypatch.setattr(_compiler.KernelFiles, "_save_data", full)
    _compiler.report_unsaved.cache_clear()
    assert row_scores() == [1.0, 4.0]
    said = [line for line in capsys.readouterr().err.splitlines() if "compiling" not in line]
    assert len(said) == 1
    assert "kernels cannot be stored in" in said[0]
    assert os.strerror(errno.ENOSPC) in said[0]


def test_a_chosen_part_is_compiled_once_for_its_types_in_a_lean_function():
    from dualnewton.kernels._compiler import LEAN, ChosenPart, KernelCompiler, _LeanTyping

    chosen = []

    def choose(x, i):
        chosen.append((x, i))
        return lambda x, i: x[i] ** 2 + x[i - 1] * x[i - 2]

    part = ChosenPart(choose, **LEAN)

    def twice(x, out):
        for i in range(2, x.size):
            out[i] = part(x, i) + part(x, i)
        return out[2]

    made = numba.njit(twice, pipeline_class=KernelCompiler, no_cfunc_wrapper=True, **LEAN)
    x = np.arange(5.0)
    assert made(x, out := np.zeros(5)) == 8.0
    assert out.tolist() == [0.0, 0.0, 8.0, 22.0, 44.0]
    assert len(chosen) == 1  # once for these types
    assert any(function is operator.getitem for function, *_ in _LeanTyping.signatures)


def test_rounds_that_may_read_a_copy_in_float32_are_compiled_with_those_of_float64():
    names = [step.name for step in warm_up.steps(("dense",), ("float64",))]
    assert "dense float32: rounds of blocks, smooth losses, SDNA" in names
    assert len(names) == len(set(names))
    assert not any("float32" in step.name for step in warm_up.steps(("csr",), ("float64",)))
