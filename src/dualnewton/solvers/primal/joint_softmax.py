"""The joint Hessian of all classes of softmax, for Newton's method.

The Hessian of row i is c_i Q_i ⊗ ã_i ã_iᵀ with Q = diag(p) − ppᵀ = Σ_{k<l} p_k p_l (e_k − e_l)(e_k − e_l)ᵀ: the matrix is a sum
of one Gram matrix with nonnegative weights for each pair of classes, without cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualnewton.matrix import Data
from dualnewton.solvers.primal.curvature import Cholesky, Curvature
from dualnewton.solvers.primal.decisions import Decisions
from dualnewton.solvers.primal.single_precision import EXACT, bears_noise
from dualnewton.solvers.primal.sketching import ALL, Enough, Hessian

NEGLIGIBLE = 1e-3
"""Rows whose weight is below this fraction of the mean weight of a pair of classes are left out of its Gram matrix: near the
optimum these are most rows, and together they hold at most this fraction of the curvature."""


class JointHessian(Hessian):
    """The curvature of all rows, or of a uniform sample of them, in all classes, K(d + 1) features square."""

    joint = True

    def __init__(
        self,
        data: Data,
        ridge: np.ndarray,  # (d,) or (d + 1,) penalties of a class; with one more entry if it has an intercept
        classes: int,  # K
        decisions: Decisions,  # choose whether single precision is considered
    ) -> None:
        self.data, self.ridge, self.classes, self.decisions = data, ridge, classes, decisions
        self.intercept, self.rows_read = ridge.size > data.d, data.n

    def at(
        self,
        weights: Sequence[np.ndarray],
        size: int,
        rng: np.random.Generator,
        enough: Enough = ALL,  # noqa: ARG002
    ) -> Curvature:
        """Return the curvature for the weights of each of the K(K − 1)/2 pairs of classes, from about ``size`` rows."""
        K, m = self.classes, self.ridge.size
        exact, self.rows_read = size >= self.data.n, min(size, self.data.n)
        if not exact:  # rows outside the sample have weight zero
            drawn = self.data.strata(rng, size)
            weights = [self.data.only_at(own, drawn, self.data.n / size) for own in weights]
        # No class has more curvature than all pairs together.
        single = self.decisions.considers_single(self.data.n) and bears_noise(
            self.data, np.tile(self.ridge, K), sum(weights[1:], start=weights[0]), EXACT
        )
        H = self.data.coupled_gram(
            weights, K, intercept=self.intercept, single=single, negligible=NEGLIGIBLE, keep=True
        )
        if self.intercept:
            # Adding a number to all intercepts changes nothing: the gradient is zero along that direction, and so is the step.
            H[:, -1, :, -1] += float(H[:, -1, :, -1].trace()) / K**2 or 1.0
        return Cholesky(H.reshape(K * m, K * m), np.tile(self.ridge, K), exact=exact)
