"""The models of a grid over fewer examples than features: fitted in n coordinates, mapped back, and certified on the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualnewton.estimators.model_selection._session import GridSession
from dualnewton.interop.parts import Examples
from dualnewton.objective.certificates import certify_models
from dualnewton.objective.coordinates import Factor
from dualnewton.planning.direct import shares_coordinates
from dualnewton.planning.tuning import Tuning
from dualnewton.run.result import Result
from dualnewton.run.track import proved


class FewCoordinates:
    """One factor of the n×n Gram matrix of the rows, for all values, folds and classes; the penalty must be ½‖w‖²."""

    def __init__(self, data: Examples) -> None:
        self.factor = Factor.of(data.matrix)

    @staticmethod
    def is_cheaper(data: Examples, tuning: Tuning) -> bool:
        """Whether there are fewer examples than features, and the n×n Gram matrix is cheap enough."""
        return data.matrix.capabilities.whole and shares_coordinates(data.matrix.profile, tuning)

    def of(self, data: Examples) -> Examples:
        """Return the data in these coordinates."""
        return data._replace(X=self.factor.rows, squares=None)

    def starts(self, results: Sequence[Result] | None) -> list[Result] | None:
        """Return earlier results in these coordinates."""
        if not results:
            return None
        return self._mapped(results, self.factor.coordinates)

    def lifted(self, session: GridSession, problems: Sequence[Any], found: Sequence[Result]) -> list[Result]:
        """Return the results for the problems over all features; those whose gap exceeds ``tol`` by rounding are continued."""
        results = self._mapped(found, self.factor.lifted)
        pairs = certify_models(problems, [each.w for each in results], [each.intercept for each in results])
        pairs = [proved(problem, pair, session.tol) for problem, pair in zip(problems, pairs, strict=True)]
        results = [
            replace(each, w=pair.w, alpha=pair.alpha, certificate=pair.certificate)
            for each, pair in zip(results, pairs, strict=True)
        ]
        missed = [k for k, each in enumerate(results) if each.converged and each.certificate.relative_gap > session.tol]
        return session.improved(problems, results, missed)

    @staticmethod
    def _mapped(results: Sequence[Result], to: Any) -> list[Result]:
        shape = np.shape(results[0].w)
        W = to(np.concatenate([np.atleast_2d(result.w) for result in results]))
        each = W.reshape(len(results), *shape[:-1], W.shape[1])
        return [replace(result, w=w) for result, w in zip(results, each, strict=True)]
