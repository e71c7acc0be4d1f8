"""The names of losses and penalties, for command lines and files."""

from __future__ import annotations

from collections.abc import Callable

from dualnewton import losses, regularizers
from dualnewton.losses import Loss
from dualnewton.regularizers import Regularizer, mixed

LOSSES: dict[str, type[Loss]] = {
    "logistic": losses.Logistic,
    "squared_hinge": losses.SquaredHinge,
    "smooth_hinge": losses.SmoothHinge,
    "hinge": losses.Hinge,
    "squared": losses.Squared,
    "huber": losses.Huber,
    "epsilon_insensitive": losses.EpsilonInsensitive,
    "squared_epsilon_insensitive": losses.SquaredEpsilonInsensitive,
    "smooth_epsilon_insensitive": losses.SmoothEpsilonInsensitive,
    "quantile": losses.Quantile,
    "smooth_quantile": losses.SmoothQuantile,
    "poisson": losses.Poisson,
    "gamma": losses.Gamma,
    "tweedie": losses.Tweedie,
}
"""Losses of one margin by name; the parameters of a loss are the fields of its class."""


def _elasticnet(l1_ratio: float = 0.5) -> tuple[float, Regularizer]:
    return mixed(1.0, l1_ratio)


def _nonnegative(l1_ratio: float = 0.0) -> tuple[float, Regularizer]:
    return mixed(1.0, l1_ratio, positive=True)


def _multi_task(l1_ratio: float = 1.0) -> tuple[float, Regularizer]:
    return mixed(1.0, l1_ratio, joint=True)


MULTI_TASK = "multi_task"
"""The penalty λ(r Σ_j ‖W_j‖ + ½(1 − r)‖W‖²) of all outputs together, with r = ``l1_ratio``: see ``JointL1``."""

PENALTIES: dict[str, type[Regularizer] | Callable[..., tuple[float, Regularizer]]] = {
    "l2": regularizers.L2,
    "l1": regularizers.L1,
    "elasticnet": _elasticnet,
    "nonnegative": _nonnegative,
    "elastic_net": regularizers.ElasticNet,
    "non_negative": regularizers.NonNegative,
    "box": regularizers.Box,
    "group_elastic_net": regularizers.GroupElasticNet,
    MULTI_TASK: _multi_task,
    "joint_l1": regularizers.JointL1,
    "joint_elastic_net": regularizers.JointElasticNet,
}
"""Regularisers by name: a class, whose fields are its parameters, or a function of parameters that returns a factor of λ and g.

The first two functions represent λ(r‖w‖₁ + ½(1 − r)‖w‖²), scikit-learn's mixture with r = ``l1_ratio``; the second with w ≥ 0.
"""
