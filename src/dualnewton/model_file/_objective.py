"""What a model minimises, in words that a command line can take and a file can hold."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, fields
from typing import Any

import numpy as np

from dualnewton import losses
from dualnewton.errors import DualnewtonError
from dualnewton.losses import Loss, Margin
from dualnewton.objective.multinomial import MultinomialProblem
from dualnewton.objective.problem import Problem
from dualnewton.regularizers import Regularizer, mixed
from dualnewton.validation import finite, positive

LOSSES: dict[str, type[Loss]] = {
    "logistic": losses.Logistic,
    "squared_hinge": losses.SquaredHinge,
    "smooth_hinge": losses.SmoothHinge,
    "hinge": losses.Hinge,
    "squared": losses.Squared,
    "huber": losses.Huber,
    "epsilon_insensitive": losses.EpsilonInsensitive,
    "squared_epsilon_insensitive": losses.SquaredEpsilonInsensitive,
}
"""By name; the parameters of each are the fields of its class."""


@dataclass(frozen=True)
class Penalty:
    """r‖w‖₁ + ½(1 − r)‖w‖², subject to w ≥ 0 if ``positive``: its own r, and whether another may be asked for."""

    l1_ratio: float
    free: bool = False
    positive: bool = False


PENALTIES = {
    "l2": Penalty(0.0),
    "l1": Penalty(1.0),
    "elasticnet": Penalty(0.5, free=True),
    "nonnegative": Penalty(0.0, free=True, positive=True),
}

SOFTMAX, REST = "softmax", "ovr"
"""What becomes of more than two classes: one problem over all of them, or one for each class against the rest."""


@dataclass(frozen=True)
class Objective:
    """The objective P of a model, in words.

        P(w, b) = (1/n) Σ c_i φ(x_iᵀw + b; y_i) + λ (r‖w‖₁ + ½(1 − r)‖w‖²)

    Of more than two classes it is one such problem for each class against the rest, or one with the softmax loss and the
    penalties of all w_k.

    Parameters
    ----------
    loss : str
        φ, a name in ``LOSSES``.
    lam : float
        λ > 0.
    penalty : str
        A name in ``PENALTIES``.
    l1_ratio : float, optional
        r ∈ [0, 1], where the penalty leaves it open.
    fit_intercept : bool
        Whether b is free (unpenalised) or zero.
    parameters : mapping of floats
        Of the loss: ``delta``, ``epsilon`` or ``width``; what is absent has the default of its class.
    multiclass : {"softmax", "ovr"}, optional
        For more than two classes: which.
    """

    loss: str
    lam: float
    _: KW_ONLY
    penalty: str = "l2"
    l1_ratio: float | None = None
    fit_intercept: bool = True
    parameters: Mapping[str, float] = field(default_factory=dict)
    multiclass: str | None = None

    def __post_init__(self) -> None:
        among("loss", self.loss, LOSSES)
        positive("lam", self.lam)
        if not isinstance(self.fit_intercept, bool):
            raise DualnewtonError(f"fit_intercept must be true or false, got {self.fit_intercept!r}")
        object.__setattr__(self, "l1_ratio", self._settled_ratio())
        object.__setattr__(self, "parameters", self._settled_parameters())
        self._check_multiclass()

    def _settled_ratio(self) -> float:
        penalty = PENALTIES[among("penalty", self.penalty, PENALTIES)]
        ratio = penalty.l1_ratio if self.l1_ratio is None else finite("l1_ratio", self.l1_ratio)
        if not 0.0 <= ratio <= 1.0:
            raise DualnewtonError(f"l1_ratio must be a number in [0, 1], got {self.l1_ratio!r}")
        if ratio != penalty.l1_ratio and not penalty.free:
            free = " or ".join(name for name, other in PENALTIES.items() if other.free)
            raise DualnewtonError(f"l1_ratio belongs to the penalty {free}, got {ratio:g} beside {self.penalty}")
        return ratio

    def _settled_parameters(self) -> dict[str, float]:
        """Return all parameters of the loss, which checks them."""
        own = [each.name for each in fields(LOSSES[self.loss])]  # type: ignore[arg-type]
        for name in self.parameters:
            if name not in own:
                takers = ", ".join(word for word in LOSSES if name in _parameters(word)) or "no loss"
                raise DualnewtonError(f"{name} is a parameter of {takers}, not of {self.loss}")
        made = LOSSES[self.loss](**self.parameters)
        return {name: float(getattr(made, name)) for name in own}

    def _check_multiclass(self) -> None:
        if self.multiclass is None:
            return
        among("multiclass", self.multiclass, (SOFTMAX, REST))
        if not self.classifies:
            raise DualnewtonError(f"multiclass is for losses of classification, got loss={self.loss!r}")
        if self.multiclass == SOFTMAX and not self.has_softmax:
            raise DualnewtonError(f"multiclass=softmax needs the logistic loss, got {self.loss}: use ovr")

    def __str__(self) -> str:
        parameters = "".join(f", {name} = {value:g}" for name, value in self.parameters.items())
        ratio = f", l1_ratio = {self.l1_ratio:g}" if PENALTIES[self.penalty].free else ""
        several = "" if self.multiclass is None else f" ({SEVERAL[self.multiclass]})"
        intercept = "an intercept" if self.fit_intercept else "no intercept"
        return f"{self.loss}{parameters}{several}, penalty {self.penalty}{ratio}, lambda = {self.lam:.6g}, {intercept}"

    @property
    def classifies(self) -> bool:
        """Whether the labels are classes."""
        return issubclass(LOSSES[self.loss], Margin)

    @property
    def has_softmax(self) -> bool:
        """Whether several classes may be one problem."""
        return self.loss == "logistic"

    @property
    def is_softmax(self) -> bool:
        """Whether they are."""
        return self.multiclass == SOFTMAX

    @property
    def has_probabilities(self) -> bool:
        """Whether margins stand for probabilities."""
        return self.loss == "logistic"

    def to_dict(self) -> dict[str, Any]:
        """Return the words by name."""
        return asdict(self)

    def regularizer(self) -> tuple[float, Regularizer]:
        """Return λ and g, whose product is the penalty."""
        assert self.l1_ratio is not None
        return mixed(self.lam, self.l1_ratio, positive=PENALTIES[self.penalty].positive)

    def problems(self, X: Any, y: np.ndarray, *, n_classes: int = 0, sample_weight: Any = None) -> list[Problem]:
        """Return what is to be solved, all over one X.

        Parameters
        ----------
        X : matrix of shape (n, d)
            The examples.
        y : array of shape (n,)
            Class numbers 0, …, K − 1, or targets.
        n_classes : int
            K; 0 for targets.
        sample_weight : array of shape (n,), optional
            c.
        """
        lam, regularizer = self.regularizer()
        more: dict[str, Any] = {"sample_weight": sample_weight, "fit_intercept": self.fit_intercept}
        if self.is_softmax:
            return [MultinomialProblem(X, y, lam=lam, n_classes=n_classes, regularizer=regularizer, **more)]
        loss = LOSSES[self.loss](**self.parameters)
        first = Problem(X, outputs(y, n_classes)[0], loss, regularizer=regularizer, lam=lam, **more)
        # Of the same X, which the first has looked at.
        rest = (
            Problem(first.X, each, loss, regularizer=regularizer, lam=lam, **more) for each in outputs(y, n_classes)[1:]
        )
        return [first, *rest]


SEVERAL = {SOFTMAX: "softmax over the classes", REST: "each class against the rest"}


def outputs(y: np.ndarray, n_classes: int) -> list[np.ndarray]:
    """Return the labels of each problem: targets as they are, two classes as ±1, more as one against the rest."""
    if not n_classes:
        return [y]
    return [np.where(y == k, 1.0, -1.0) for k in ([1] if n_classes == 2 else range(n_classes))]


def among(name: str, value: Any, known: Any) -> Any:
    """Return a word if it is known, or say which are, and which one may have been meant."""
    if isinstance(value, str) and value in known:
        return value
    close = difflib.get_close_matches(str(value), list(known), 1, 0.5)
    meant = f": did you mean {close[0]}?" if close else ""
    raise DualnewtonError(f"{name} must be one of {', '.join(known)}, got {value!r}{meant}")


def _parameters(loss: str) -> list[str]:
    return [each.name for each in fields(LOSSES[loss])]  # type: ignore[arg-type]
