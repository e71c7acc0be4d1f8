"""What must hold on a GPU, as functions that need nothing but NumPy and CuPy: ``python -m tests.gpu.checks`` runs them all.

``test_gpu.py`` runs the same under pytest, where they are skipped by name on a machine without a GPU.
"""

import copy
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from tests.gpu import tiles, vectors
from tests.gpu.cases import LOSSES, close, cuda, matrices, placed, problem_on

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix import MemoryData
from dualnewton.objective.targets import Derivatives, PrimalPoints
from dualnewton.row_arrays import on_host

PROCESSES = 8
"""Most checks that run at a time."""


def check_products():
    """Products, Gram matrices and norms agree with those in memory, and repeat to the bit."""
    from dualnewton.matrix import cuda as kernels

    near, kernels.NEAR_ROWS = kernels.NEAR_ROWS, 250  # so that sparse rows are transposed in several parts
    try:
        _check_products()
    finally:
        kernels.NEAR_ROWS = near


def _check_products():
    rng = np.random.default_rng(2)
    for name, X in matrices():
        data, here = cuda(X), MemoryData(X)
        n, d = X.shape
        for K in (1, 3, 11):
            W, R = rng.standard_normal((d, K)), rng.standard_normal((n, K))
            W, R = (W[:, 0], R[:, 0]) if K == 1 else (W, R)
            close(data.times(W), here.times(W))
            close(data.transposed_times(data.placed(R)), here.transposed_times(R))
            again = [data.transposed_times(data.placed(R)) for _ in range(2)]
            assert np.array_equal(*again), name
        weights = rng.random(n)
        close(data.column_norms(data.placed(weights)), here.column_norms(weights))
        again = [data.column_norms(data.placed(weights)) for _ in range(2)]
        assert np.array_equal(*again), name
        close(data.row_scores(np.abs(W[:, 0])), here.row_scores(np.abs(W[:, 0])))
        close(data.absolute_sums(data.placed(weights)), here.absolute_sums(weights))
        assert np.array_equal(data.nonzeros(), here.nonzeros()), name
        some = np.sort(rng.choice(n, n // 3, replace=False))
        close(sp.csr_array(data.rows(some)).toarray(), sp.csr_array(here.rows(some)).toarray())
        features = np.sort(rng.choice(d, max(1, d // 3), replace=False))
        close(sp.csr_array(data.columns(features)).toarray(), sp.csr_array(here.columns(features)).toarray())
        if d <= 2100:
            for rows in (None, some):
                own = weights if rows is None else weights[rows]
                for signed in (own, own - 0.5):
                    expected = here.weighted_gram(signed, rows, intercept=True)
                    close(data.weighted_gram(data.placed(signed), rows, intercept=True), expected)
                    close(data.weighted_gram(data.placed(signed), rows, intercept=True, single=True), expected, 1e-5)
                    again = [on_host(data.weighted_gram(data.placed(signed), rows)) for _ in range(2)]
                    close(again[0], here.weighted_gram(signed, rows))
                    assert sp.issparse(X) or np.array_equal(*again), name
            pairs = [rng.random(n) for _ in range(3)]
            for more in ({"intercept": True}, {"negligible": 0.0}):
                close(data.coupled_gram(list(map(data.placed, pairs)), 3, **more), here.coupled_gram(pairs, 3, **more))
            targets, origin = rng.standard_normal((n, 2)), rng.standard_normal(d)
            for point in (np.zeros(d), origin):
                mine = data.moments(data.placed(weights), data.placed(targets), point)
                for found, expected in zip(mine, here.moments(weights, targets, point), strict=True):
                    close(found, expected)


def check_row_functions():
    """Sums over rows that read no X agree with those in memory for each loss, and repeat to the bit."""
    from dualnewton.objective import row_sums

    rng, n = np.random.default_rng(7), 5003
    X = rng.standard_normal((n, 2))
    for name, loss in LOSSES.items():
        for more in ({}, {"sample_weight": rng.uniform(0.0, 2.0, n) * (rng.random(n) < 0.9)}):
            here = problem_on(X, loss)
            here = dn.Problem(X, here.y, loss, fit_intercept=True, offset=here.offset if more else None, **more)
            there = dn.Problem(cuda(X), here.y, loss, fit_intercept=True, offset=here.offset, **more)
            z, way = rng.standard_normal((2, *here.o.shape))
            alpha = here.alpha_of(
                rng.standard_normal(here.model(np.zeros((loss.columns, 2)[loss.columns == 1 :])).shape)
            )
            outside = alpha.copy()
            outside[7] += 100.0

            def results(problem, loss=loss, z=z, way=way, points=(alpha, outside)):
                rows, (z, way) = problem.row_vectors, map(problem.data.placed, (z, way))
                yield row_sums.values(loss, z, rows)
                yield problem.row_curvature(z)
                yield problem.slopes_at(z)
                yield problem.best_intercept_at(z)
                yield problem.balanced(way)
                if loss.columns == 1:
                    yield row_sums.slope_along(loss, z, way, 0.3, rows)
                for point in map(problem.data.placed, points):
                    sizes, linear, conjugates = row_sums.dual_terms(loss, point, rows, masses=True)
                    yield from (*sizes, linear, conjugates)
                    yield row_sums.conjugates(loss, 0.5 * point, rows)
                    yield from row_sums.dual_sizes(loss, point, rows, masses=True)

            for found, again, expected in zip(results(there), results(there), results(here), strict=True):
                assert np.array_equal(on_host(found), on_host(again)), name
                if np.isfinite(expected).all():
                    np.testing.assert_allclose(np.asarray(on_host(found)), expected, rtol=1e-9, atol=1e-9)
                else:
                    assert np.array_equal(np.asarray(on_host(found)), expected), name


def check_passes_of_several_widths():
    """Passes over rows of different lengths, in turn, do not change the shared memory that kernels of others may use."""
    rng = np.random.default_rng(11)
    problems = [
        problem_on(cuda(rng.standard_normal((600, d)).astype(np.float32)), losses.Huber(0.7)) for d in (30, 8, 2)
    ]
    for problem in (*problems, *problems):
        assert np.isfinite(problem.certify(np.zeros(problem.d), 0.0).gap)


def check_passes():
    """A pass agrees with that in memory for each loss, for gradients and for certificates, and repeats to the bit."""
    rng = np.random.default_rng(3)
    for _, X in matrices():
        data, here = cuda(X), MemoryData(X)
        for loss in (
            LOSSES.values() if X.shape[1] == 100 else [losses.Logistic(), losses.Softmax(3)]
        ):  # each is compiled
            for g in (regularizers.L2(), regularizers.L1()):
                problem = problem_on(X, loss, regularizer=g, lam=0.01)
                W, b = 0.1 * rng.standard_normal((loss.columns, X.shape[1])), rng.standard_normal(loss.columns)
                for target in (Derivatives([problem]), PrimalPoints([problem])):
                    rows = problem.row_vectors
                    expected = here.evaluate(W, b, target, [rows])
                    found = data.evaluate(W, b, target, [placed(data, rows)])
                    again = data.evaluate(W, b, target, [placed(data, rows)])
                    for part in ("values", "gradients", "slopes", "margins", "kept"):
                        mine, theirs = getattr(found, part), getattr(expected, part)
                        assert (mine is None) == (theirs is None)
                        if theirs is not None:
                            if part in ("gradients", "kept") and isinstance(loss, losses.NonSmooth):
                                continue  # a margin within rounding of a kink has either slope
                            close(mine, theirs, 1e-8)
                            assert np.array_equal(on_host(mine), on_host(getattr(again, part)), equal_nan=True), part


def check_two_models():
    """Several models share the passes."""
    rng = np.random.default_rng(4)
    for _, X in matrices():
        problems = [problem_on(X, losses.Logistic(), seed) for seed in (1, 2, 3)]
        data, W, b = cuda(X), 0.1 * rng.standard_normal((3, X.shape[1])), rng.standard_normal(3)
        for target in (Derivatives(problems), PrimalPoints(problems)):
            rows = [each.row_vectors for each in problems]
            expected = MemoryData(X).evaluate(W, b, target, rows)
            found = data.evaluate(W, b, target, [placed(data, each) for each in rows])
            for part in ("values", "gradients", "slopes", "margins"):
                close(getattr(found, part), getattr(expected, part), 1e-8)


def fits():
    """Problems, as arguments of Problem beside X and y."""
    L1, mixed = regularizers.L1(), regularizers.ElasticNet(0.5)
    for name, loss in LOSSES.items():
        yield name, loss, {}, "auto"
        yield name, loss, {}, "newton"
        yield name, loss, {}, "ihs"
        yield name, loss, {"regularizer": mixed}, "newton"
        if not isinstance(loss, losses.NonSmooth):
            yield name, loss, {"regularizer": L1}, "newton"


def check_fits():
    """Fits agree with those in memory, and the certificate is confirmed there, for dense and sparse rows."""
    rng, failed = np.random.default_rng(5), []
    for storage in (np.asarray, sp.csr_array):
        for d in (8, 260) if storage is np.asarray else (8,):
            X = storage((rng.standard_normal((3000, d)) * (rng.random((3000, d)) < 0.5)).astype(np.float32))
            for name, loss, more, method in fits():
                here = problem_on(X, loss, lam=0.02, **more)
                there = dn.Problem(
                    cuda(X),
                    here.y,
                    loss,
                    sample_weight=here.sample_weight,
                    offset=here.offset,
                    fit_intercept=True,
                    lam=0.02,
                    **more,
                )
                try:
                    tol = 1e-6
                    found = dn.solve(there, method=method, tol=tol, random_state=0)
                    proof = here.certify(found.w, found.intercept, on_host(found.alpha))
                    what = f"{name} {storage.__name__} d={d} {method} {more}: {found.status} {found.certificate.relative_gap:.2e}"
                    assert found.converged, what
                    assert proof.relative_gap <= 2 * tol, f"{what}, but {proof.relative_gap:.2e} on the CPU"
                    errors = found.certificate.rounding + proof.rounding
                    assert abs(found.certificate.primal - proof.primal) <= errors, f"{what}: beyond the rounding errors"
                    if name in ("logistic", "softmax"):
                        again = dn.solve(there, method=method, tol=tol, random_state=0)
                        assert np.array_equal(found.w, again.w), f"{what}: other bits"
                except Exception:
                    failed.append(f"{name} {storage.__name__} d={d} {method} {more}\n{traceback.format_exc()[-900:]}")
    assert not failed, f"{len(failed)} fits failed:\n" + "\n".join(failed[:12])


def check_many_features():
    """Fits whose vectors over features are on the GPU agree with those in memory, repeat to the bit, and resume."""
    n, d = 4000, 70_000
    X = sp.random_array((n, d), density=20 / d, format="csr", dtype=np.float32, rng=np.random.default_rng(8))
    for loss in (losses.Logistic(), losses.SquaredHinge(), losses.Softmax(3)):
        for intercept in (False, True):
            here = problem_on(X, loss, lam=1e-4)
            more = {"sample_weight": here.sample_weight, "offset": here.offset, "fit_intercept": intercept}
            here, there = (dn.Problem(rows, here.y, loss, lam=1e-4, **more) for rows in (X, cuda(X)))
            found, again = (dn.solve(there, tol=1e-8, random_state=0) for _ in range(2))
            assert found.converged, found
            assert here.certify(found.w, found.intercept, on_host(found.alpha)).relative_gap <= 2e-8
            assert np.array_equal(found.w, again.w), f"{loss}: other bits"
            with tempfile.TemporaryDirectory() as folder:
                place = dn.Checkpoint(Path(folder) / "run", seconds=0.0, spacing=0.0)
                dn.solve(there, tol=1e-8, random_state=0, max_epochs=2, checkpoint=place)
                resumed = dn.solve(there, tol=1e-8, random_state=0, checkpoint=place)
            assert np.array_equal(found.w, resumed.w), f"{loss}: other bits after a checkpoint"


def check_checkpoint():
    """A run on a GPU resumes from its checkpoint with the same bits."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((20000, 30))
    y = np.sign(X @ rng.standard_normal(30) + rng.standard_normal(20000))
    problem = dn.Problem(cuda(X), y, losses.Logistic(), lam=1e-6, fit_intercept=True)
    whole = dn.solve(problem, method="newton", tol=1e-10, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        place = dn.Checkpoint(Path(folder) / "run", seconds=0.0, spacing=0.0)
        dn.solve(problem, method="newton", tol=1e-10, random_state=0, max_epochs=2, checkpoint=place)
        resumed = dn.solve(problem, method="newton", tol=1e-10, random_state=0, checkpoint=place)
    assert np.array_equal(whole.w, resumed.w)


def check_torch():
    """A tensor of PyTorch on the GPU is used without a copy."""
    try:
        import torch
    except ImportError:
        return
    X = torch.randn(2000, 5, device="cuda", dtype=torch.float64)
    y = torch.sign(X[:, 0] + 0.1)
    problem = dn.Problem(X, y, losses.Logistic(), lam=0.01, sample_weight=torch.rand(2000, device="cuda"))
    assert problem.data.matrix.data.ptr == X.data_ptr()
    assert dn.solve(problem).converged
    assert dn.solve(dn.Problem(X[1:], y[1:], losses.Logistic(), lam=0.01)).converged  # at no multiple of 16 bytes


def check_estimators():
    """Estimators fit what is on the GPU there, return arrays of its library, and agree with fits in memory."""
    import cupy
    from cupyx.scipy import sparse

    rng = np.random.default_rng(7)
    X = rng.standard_normal((4000, 12))
    z = X @ rng.standard_normal(12)
    targets, classes = z + rng.standard_normal(4000), np.digitize(z + rng.standard_normal(4000), [-1.0, 1.0])
    words = np.array(["no", "yes"])[(targets > 0.0) * 1]
    kinds = {
        "cupy": (cupy.asarray, cupy.asarray, cupy.ndarray),
        "cupyx": (sparse.csr_matrix, cupy.asarray, cupy.ndarray),
        "device": (np.asarray, np.asarray, np.ndarray),
    }
    try:
        import torch

        kinds["torch"] = (*[lambda a: torch.as_tensor(a, device="cuda")] * 2, torch.Tensor)
    except ImportError:
        pass
    for name, (rows, vector, kind) in kinds.items():
        more = {"device": "cuda"} if name == "device" else {}
        there = rows(X if name != "cupyx" else cupy.asarray(X))
        for model, y in (
            (dn.LogisticRegression(tol=1e-8), (targets > 0.0) * 1),
            (dn.LogisticRegression(tol=1e-8), classes),
            (dn.LinearSVC(tol=1e-6), classes),
            (dn.Ridge(tol=1e-8), targets),
            (dn.Lasso(alpha=0.01, tol=1e-8), targets),
            (dn.ERMRegressor("huber", lam=1e-3, tol=1e-8), targets),
            (dn.HuberRegressor(tol=1e-8), targets),
            (dn.LinearRegression(), targets),
            (dn.LogisticRegression(C=np.inf, tol=1e-8), (targets > 0.0) * 1),
            (dn.PoissonRegressor(tol=1e-8), np.abs(targets)),
        ):
            what = f"{type(model).__name__} on {name}"
            here = copy.copy(model).fit(X, y)
            found = copy.copy(model).set_params(**more).fit(there, vector(y))
            for part in ("coef_", "intercept_", "dual_coef_"):
                assert isinstance(getattr(found, part), kind | float), f"{what}: {part} {type(getattr(found, part))}"
            close(found.coef_, here.coef_, 1e-3)
            predicted = found.predict(there)
            assert isinstance(predicted, kind), f"{what}: {type(predicted)}"
            assert np.mean(np.abs(on_host(predicted) - here.predict(X)) > 1e-2) < 1e-2, what
            if hasattr(found, "predict_proba"):
                close(found.predict_proba(there), here.predict_proba(X), 1e-3)
                assert isinstance(found.predict_log_proba(there), kind), what
            assert abs(found.score(there, vector(y)) - here.score(X, y)) < 1e-3, what
            assert dn.certify(found, there, vector(y)).relative_gap <= 1e-5, what
    assert dn.LogisticRegression().fit(cupy.asarray(X), words).predict(cupy.asarray(X[:3])).dtype.kind == "U"


def check_searches():
    """Cross-validation by folds on the GPU chooses what it chooses in memory."""
    import cupy
    from cupyx.scipy import sparse

    rng = np.random.default_rng(8)
    X = rng.standard_normal((3000, 8))
    z = X @ rng.standard_normal(8)
    targets = z + rng.standard_normal(3000)
    classes = np.digitize(targets, [-1.0, 1.0])
    for model, y in (
        (dn.LogisticRegressionCV(Cs=3, cv=3, tol=1e-8), (targets > 0.0) * 1),
        (dn.LogisticRegressionCV(Cs=3, cv=3, tol=1e-8, scoring="neg_log_loss"), classes),
        (dn.RidgeCV(cv=3, tol=1e-8), targets),
        (dn.RidgeClassifierCV(cv=3, tol=1e-8), classes),
        (dn.LassoCV(cv=3, tol=1e-8), targets),
        (dn.ElasticNetCV(cv=3, tol=1e-8), targets),
        (dn.PoissonRegressorCV(cv=3, tol=1e-8), np.abs(targets)),
    ):
        here = copy.copy(model).fit(X, y)
        chosen = "C_" if hasattr(here, "C_") else "alpha_"
        for there in (cupy.asarray(X), sparse.csr_matrix(cupy.asarray(X))):
            found = copy.copy(model).fit(there, cupy.asarray(y))
            what = f"{type(model).__name__} on {type(there).__name__}"
            assert isinstance(found.coef_, cupy.ndarray), what
            assert np.allclose(getattr(found, chosen), getattr(here, chosen), rtol=1e-12), what
            close(found.coef_, here.coef_, 1e-3)


def check_streamed():
    """Rows of the host, in memory or memory-mapped, that are copied to the GPU piece by piece: fits are those in memory."""
    from dualnewton.matrix import cuda_copies
    from dualnewton.validation import data_matrix

    rng = np.random.default_rng(9)
    X = rng.standard_normal((20000, 40)) * (rng.random((20000, 40)) < 0.5)
    z = X @ rng.standard_normal(40)
    y, classes = np.where(z + rng.standard_normal(20000) > 0.0, 1.0, -1.0), np.digitize(z, [-1.0, 1.0])
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", X)
        mapped = np.load(Path(folder) / "X.npy", mmap_mode="r")
        for rows in (X, X.astype(np.float32), sp.csr_array(X), sp.csr_array(X.astype(np.float32)), mapped):
            here = MemoryData(np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float64))
            data = cuda_copies.streamed(data_matrix("X", rows), 1 << 20)
            assert len(data.source.rows) > 2
            weights = rng.random(len(y))
            close(data.transposed_times(weights), here.transposed_times(weights))
            close(data.weighted_gram(weights), here.weighted_gram(weights))
            for loss, labels, penalty in (
                (losses.Logistic(), y, regularizers.L2()),
                (losses.Logistic(), y, regularizers.L1()),
                (losses.Softmax(3), classes, regularizers.L2()),
            ):
                more = {"lam": 1e-3, "fit_intercept": True, "regularizer": penalty}
                found, again = (dn.solve(dn.Problem(data, labels, loss, **more), tol=1e-8) for _ in range(2))
                assert found.converged, found
                assert np.array_equal(found.w, again.w)
                proof = dn.Problem(here, labels, loss, **more).certify(found.w, found.intercept, found.alpha)
                assert proof.relative_gap <= 2e-8, proof
        share, cuda_copies.SHARE = cuda_copies.SHARE, 0.0
        try:
            model = dn.LogisticRegression(device="cuda", tol=1e-8).fit(X, y)
        finally:
            cuda_copies.SHARE = share
    close(model.coef_, dn.LogisticRegression(tol=1e-8).fit(X, y).coef_, 1e-3)


def check_factors():
    """Factors by tiles solve as NumPy does, repeat to the bit, and report matrices that are not positive definite."""
    import cupy

    from dualnewton.matrix import cuda_factors

    rng = np.random.default_rng(4)
    for m in (1, 63, 64, 65, 201, 640, 1001, 2048):
        rows = rng.standard_normal((3 * m, m)) * np.geomspace(1.0, 1e-3, m)
        H, diagonal, g = rows.T @ rows, rng.uniform(1e-6, 1e-5, m), rng.standard_normal(m)
        (U, failed), (again, _) = (cuda_factors.inverse_root(cupy.asarray(H), diagonal) for _ in range(2))
        assert not failed
        assert np.array_equal(U.get(), again.get()), m
        expected = np.linalg.solve(H + np.diag(diagonal), g)
        for _ in range(2):
            close(cuda_factors.solved(U, g), expected, 1e-9)
        H[m // 2, m // 2] = -1.0
        assert cuda_factors.inverse_root(cupy.asarray(H), diagonal)[1], m
        H[m // 2, m // 2] = np.nan
        assert cuda_factors.inverse_root(cupy.asarray(H), diagonal)[1], m


def check_copies():
    """Short arrays reach the GPU and come back unchanged when the memory for them is used again and again."""
    import cupy

    from dualnewton.matrix import cuda_library
    from dualnewton.matrix.device import DeviceData

    rng, copies = np.random.default_rng(5), []
    for k in range(60):  # more numbers than the memory has room for
        given = rng.standard_normal(60_000 - k)
        copies.append((given, cupy.asarray(given)))
        total = cuda_library.added(cupy.asarray(given)[None])
        assert np.array_equal(on_host(total), given)
        assert np.array_equal(cuda_library.totals(cupy.asarray(np.stack([given, given])), 2, given.size), given + given)
    for given, there in copies:
        assert np.array_equal(on_host(there), given)
        assert np.array_equal(on_host(there.astype(np.float32)), given.astype(np.float32))
    data = cuda(rng.standard_normal((10_007, 3)))
    for size in (1, 100, 5000):
        drawn, specified = (of(data, np.random.default_rng(6), size) for of in (type(data).strata, DeviceData.strata))
        assert np.array_equal(on_host(drawn), on_host(specified))
    for kind, d in ((np.float32, 3), (np.float64, 4), (np.float32, 8)):
        X, rows = rng.standard_normal((500, d)).astype(kind), np.sort(rng.choice(500, 77, replace=False))
        assert np.array_equal(on_host(cuda(X).subset(rows).matrix), X[rows])
        assert cuda(X).has_each(16) == MemoryData(X).has_each(16)


def check_bad_input():
    """Bad input is refused as on the CPU."""
    import cupy

    y = np.ones(3)
    for X, words in (
        (cupy.asarray([[1.0], [np.nan], [2.0]]), "finite"),
        (cupy.ones(3), "one row per example"),
        (cupy.ones((0, 2)), "at least one row"),
        (cupy.ones((3, 1), dtype=complex), "real numbers"),
    ):
        assert words in refusal(X, y)
    assert "-1 or +1" in refusal(cupy.ones((3, 1)), cupy.asarray([1.0, 2.0, 1.0]))
    assert ">= 0" in refusal(cupy.ones((3, 1)), y, sample_weight=cupy.asarray([1.0, -1.0, 1.0]))


def refusal(X, y, **more):
    """Return the message with which a problem is refused."""
    try:
        dn.Problem(X, y, losses.Logistic(), **more)
    except ValueError as error:
        return str(error)
    return "accepted"


CHECKS = {
    name: check for name, check in {**vars(tiles), **vars(vectors), **globals()}.items() if name.startswith("check_")
}


def outcome(name):
    """Run a check; return whether it passed and a line about it, with a traceback if it failed."""
    began = time.perf_counter()
    try:
        CHECKS[name]()
        failure = ""
    except Exception:
        failure = "\n" + "".join(traceback.format_exc().splitlines(True)[-60:])
    words = f"FAILED{failure}" if failure else "passed"
    return not failure, f"{name}: {words} ({time.perf_counter() - began:.1f} s)"


def main(names=()):
    """Run the checks, each in a process of its own: most of their time is the compiler's. Return the number that failed."""
    began, failed = time.perf_counter(), 0
    wanted = [name for name in CHECKS if not names or name in names]
    processes = max(1, min(len(wanted), PROCESSES, len(os.sched_getaffinity(0))))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # of the fits in memory; the processes inherit it
        os.environ.setdefault(name, "2")
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in as_completed([pool.submit(outcome, name) for name in wanted]):
            passed, line = done.result()
            failed += not passed
            print(line, flush=True)
    print(f"{len(wanted) - failed} of {len(wanted)} checks passed in {time.perf_counter() - began:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
