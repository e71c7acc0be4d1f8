"""Paths of multi-task models over all folds from the moments of their rows: one pass over the data, then d×d work.

    n P(W, b) = (n/Σc) Σ_i ½ c_i ‖W x_i + b − y_i‖² + Σ_j ½ ridge ‖W_j‖² + threshold ‖W_j‖

The moments of a fold are sums over groups of rows that are in the same training sets. Along a path each fit starts from the
one before. The verifier certifies the models from the same moments, with a bound on the rounding errors
(:mod:`dualnewton.objective.moments`); the chosen model, and those that miss the tolerance, are certified on the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dualnewton.estimators.model_selection._alphas import Scored
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._least_squares import moments_of_folds
from dualnewton.estimators.model_selection._session import GridSession, Outcome
from dualnewton.interop.parts import Examples
from dualnewton.matrix import linear
from dualnewton.objective.alike import like
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.moments import Centred, Verifier
from dualnewton.objective.outputs import certify_path
from dualnewton.objective.problem import Problem
from dualnewton.regularizers import mixed
from dualnewton.regularizers.joint import feature_norms
from dualnewton.run.result import Result, Status
from dualnewton.solvers.prox.joint_paths import JointPath
from dualnewton.solvers.prox.joint_subproblem import JointPenalty, minimise, sweep_of

BY_MOMENTS = "block coordinate descent on the d×d moments of the rows, computed in one pass over the data"
"""The reason in the plan of a model from moments."""

WELL_BELOW = 0.9
"""Fraction of the wanted relative gap at which a fit on moments stops; the certificate has other rounding errors."""

STEPS = 20
"""Limit on the Newton steps of a fit in the compiled kernel; a fit that has not converged by then continues in NumPy."""

NEAR, VIOLATION, TIGHTER = 0.97, 8.0, 0.25
"""Three numbers: the slope, as a fraction of the threshold, above which a feature takes part in Newton steps; the violation of
the optimality conditions at which the first Newton steps stop, as a fraction of the threshold times the wanted gap; and the
factor for the next violation if the gap was not reached. (The gap is at most twice the violation over the threshold, usually far
less.)"""

FINEST, TRIES = 1e-2, 20
"""The smallest fraction of this kind, and the limit on working sets of Newton steps in a fit; a fit that has not converged by
then is left to the certificate and the solver after it."""

AT_ONCE = 1 << 24
"""Entries of the moments, times columns and values of alpha, between two checks of the time limit."""


class Path(NamedTuple):
    """The models of a fold for decreasing alphas: W of shape (alphas, K, d) and b of shape (alphas, K)."""

    W: np.ndarray
    b: np.ndarray

    def solved(self, session: GridSession, problem: Problem, k: int) -> Result:
        """Certify the model for alpha k in its own problem, and continue with the solver if its gap exceeds ``tol``."""
        own = (self.W[k, 0], float(self.b[k, 0])) if problem.columns == 1 else (self.W[k], self.b[k])
        return session.finished([problem], [own[0]], [own[1]], BY_MOMENTS)[0]


class JointPaths:
    """The paths of all folds, and of all rows."""

    def __init__(self, session: GridSession, data: Examples, folds: Folds, *, fit_intercept: bool) -> None:
        from dualnewton.kernels import blas, joint  # loads Numba

        self.session, self.kernel, self.sweep = session, joint.path, sweep_of(compiled=True)
        self.lapack = blas.addresses(*joint.LAPACK)
        n = len(data.y)
        c = np.ones(n) if data.sample_weight is None else data.sample_weight
        self._prepare(n, c, data, folds, fit_intercept=fit_intercept)

    def _prepare(self, n: int, c: np.ndarray, data: Examples, folds: Folds, *, fit_intercept: bool) -> None:
        moments = moments_of_folds(
            data.matrix, data.y, c, folds.and_all_rows(), self.session.tuning, shift=fit_intercept
        )
        self.n, self.moments = n, [each.times(n / each.total) for each in moments]
        self.centred = [each.centred(fit_intercept=fit_intercept) for each in self.moments]
        each = zip(folds.and_all_rows().weights(c), self.centred, strict=True)
        self.squares = [n / own.sum() * float(own @ np.square(data.y - m.target_mean).sum(axis=1)) for own, m in each]

    def scored(self, posed: Sequence[Problem], errors: Any, ratio: float, alphas: np.ndarray) -> Iterator[Scored]:
        """Yield the models of decreasing alphas: first all paths are computed, then, fold by fold, all certificates.

        The problems are those of the folds and, last, of all rows, for any λ; ``errors`` computes those of held-out rows.
        """
        if not alphas.size:
            return
        self.session.begin(f"l1_ratio = {ratio:g}, alpha = {alphas[0]:.3g} to {alphas[-1]:.3g}")
        *of_folds, whole = posed
        found = self.along(ratio, alphas, self.session.goal)
        lams = [mixed(float(alpha), ratio, joint=True)[0] for alpha in alphas]
        each = [
            self._certified(fold, problem, path, lams, errors)
            for fold, (problem, path) in enumerate(zip(of_folds, found, strict=False))
        ]
        outcomes, errors = ([[pair[k] for pair in of_alpha] for of_alpha in zip(*each, strict=True)] for k in (0, 1))

        def final(k: int) -> list[Result]:
            return self.of_all_rows(like(whole, lam=lams[k]), found, k)

        yield Scored(outcomes, np.array(errors), final)

    def _certified(
        self, fold: int, problem: Problem, path: Path, lams: Sequence[float], errors: Any
    ) -> list[tuple[Outcome, float]]:
        """Certify the models of a fold, solve those that miss ``tol``, and return outcomes and errors."""
        proofs = self.certificates(fold, problem, lams, path)
        seen = [
            (Outcome(proof, Status.CONVERGED, 1.0), float(error))
            for proof, error in zip(proofs, errors.of_models(fold, path.W, path.b), strict=True)
        ]
        self.session.report([outcome for outcome, _ in seen])
        for k, proof in enumerate(proofs):
            if proof.relative_gap <= self.session.tol:
                continue
            if (ended := self.session.ended) is not None:
                seen[k] = Outcome(proof, ended, 1.0), seen[k][1]
            else:
                result = path.solved(self.session, like(problem, lam=lams[k]), k)
                seen[k] = Outcome.of(result), errors.of(fold, [result])
        return seen

    def along(self, ratio: float, alphas: np.ndarray, tol: float) -> list[Path]:
        """Return the paths of the folds, followed by that of all rows, for positive alphas and a positive l1_ratio."""
        thresholds, ridges = self.n * ratio * alphas, self.n * (1.0 - ratio) * alphas
        each = zip(self.centred, self.squares, strict=True)
        return [self._path(own, squares, ridges, thresholds, tol) for own, squares in each]

    def certificates(self, fold: int, problem: Problem, lams: Sequence[float], path: Path) -> list[Certificate]:
        """Certify the models of a fold, whose problem is given for some λ, for all alphas."""
        W = path.W[:, 0] if problem.columns == 1 else path.W
        return Verifier(self.moments[fold], problem).certificates(W, path.b, np.asarray(lams))

    def of_all_rows(self, problem: Problem, found: Sequence[Path], k: int) -> list[Result]:
        """Return the model of all rows for alpha k, whose problem is given."""
        return [found[-1].solved(self.session, problem, k)]

    def _path(self, own: Centred, squares: float, ridges: np.ndarray, thresholds: np.ndarray, tol: float) -> Path:
        H, along = np.ascontiguousarray(own.second), np.ascontiguousarray(own.cross.T)
        slopes, V, models = -along, np.zeros(along.shape), np.zeros((len(ridges), *along.shape))
        self._follow_minima(H, along, squares, slopes, V, ridges, thresholds, tol, models)
        return Path(models, own.target_mean - models @ own.mean)

    def _follow_minima(
        self,
        H: np.ndarray,
        along: np.ndarray,
        squares: float,
        slopes: np.ndarray,
        V: np.ndarray,
        ridges: np.ndarray,
        thresholds: np.ndarray,
        tol: float,
        models: np.ndarray,
    ) -> None:
        """Move V and the slopes, in place, from minimum to minimum as the penalty decreases; write the minima into ``models``."""
        step, done, tries = max(1, AT_ONCE // (V.size * len(H))), 0, 0
        while done < len(ridges):
            part = slice(done, done + step)
            if self.session.is_over:  # the remaining models keep their starting values
                models[done:] = V
                break
            penalties = ridges[part], thresholds[part]
            arguments = (H, along, squares, slopes, V, *penalties, WELL_BELOW * tol, STEPS, self.lapack, models[part])
            self.kernel.prepare(*arguments)
            found = self.kernel(*arguments)
            done, tries = done + found, tries + 1 if found == 0 else 0
            if tries > TRIES:
                models[done], done, tries = V, done + 1, 0
            elif done < len(ridges) and found < len(ridges[part]):
                goal = max(VIOLATION * TIGHTER**tries, FINEST) * tol * float(thresholds[done])
                self._newton(H, slopes, V, float(ridges[done]), float(thresholds[done]), goal)

    def _newton(
        self, H: np.ndarray, slopes: np.ndarray, V: np.ndarray, ridge: float, threshold: float, goal: float
    ) -> None:
        """Move V and the slopes, in place, to the minimum over the nonzero features and those near their threshold."""
        inside = np.flatnonzero((feature_norms(V) > 0.0) | (feature_norms(slopes) > NEAR * threshold))
        penalty = JointPenalty(np.full(inside.size, ridge), np.full(inside.size, threshold))
        old = V[:, inside]
        V[:, inside] = minimise(H[np.ix_(inside, inside)], slopes[:, inside], old, penalty, goal, self.sweep)
        slopes += (V[:, inside] - old) @ H[inside]


class JointColumns(JointPaths):
    """The same for data with fewer rows than features, made dense: products of the features in use only, and interpolated models.

    The model of all rows is fitted for one alpha only.
    See :mod:`dualnewton.solvers.prox.joint_paths`.
    """

    def _prepare(self, n: int, c: np.ndarray, data: Examples, folds: Folds, *, fit_intercept: bool) -> None:
        self.n, self.data, self.weights = n, data, folds.weights(c)
        self.fit_intercept = fit_intercept

    def along(self, ratio: float, alphas: np.ndarray, tol: float) -> list[Path]:
        """Return the paths of the folds."""
        thresholds, ridges = self.n * ratio * alphas, self.n * (1.0 - ratio) * alphas
        return [self._of_fold(c, ridges, thresholds, tol) for c in self.weights]

    def certificates(self, fold: int, problem: Problem, lams: Sequence[float], path: Path) -> list[Certificate]:  # noqa: ARG002
        """Certify the models on the data, several at a time."""
        return certify_path(problem, lams, path.W, path.b)

    def of_all_rows(self, problem: Problem, found: Sequence[Path], k: int) -> list[Result]:  # noqa: ARG002
        return self.session.solve([problem])

    def _of_fold(self, c: np.ndarray, ridges: np.ndarray, thresholds: np.ndarray, tol: float) -> Path:
        rows = np.flatnonzero(c)
        c = (self.n / c.sum()) * c[rows]
        A, T = np.array(linear.to_dense(self.data.matrix.rows(rows)), dtype=np.float64), self.data.y[rows]
        mean, target_mean = np.zeros(A.shape[1]), np.zeros(T.shape[1])
        if self.fit_intercept:
            mean, target_mean = c @ A / self.n, c @ T / self.n
            A -= mean
        roots = np.sqrt(c)[:, None]
        A *= roots
        centred, is_over = roots * (T - target_mean), lambda: self.session.is_over
        models = JointPath(A, centred, ridges, thresholds, tol, self.sweep, is_over).solve()
        return Path(models, target_mean - models @ mean)
