"""The identities behind ``losses.check`` for a loss with a kink: those without γ, and what binds it to its smooth neighbours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dualnewton import _check
from dualnewton.losses import NonSmooth

_WIDTHS = (0.01, 1.0, 7.0)
"""Widths at which the neighbours are looked at."""

_IDENTITIES = (
    _check._value_is_convex,
    _check._derivative_is_slope_of_value,
    _check._derivative_lies_in_domain,
    _check._fenchel_young_equality,
    _check._fenchel_young_inequality,
    _check._conjugate_at_the_ends,
)


def check_nonsmooth(loss: NonSmooth) -> None:
    """Raise a ``DualnewtonError`` that names each identity which ``loss`` breaks; see :func:`dualnewton.losses.check`."""
    _check._report(loss, _check._listen(_check._labels, loss))
    _check._report(loss, _check._listen(_check._loss_methods, loss))
    tried = _check._LossPoints(loss)
    _check._report(loss, (words for identity in _IDENTITIES for words in _check._listen(identity, tried)))
    for width in _WIDTHS:
        neighbour = _check._ask(loss, "smoothed", width)
        _check.check_loss(neighbour)
        _check._report(loss, _listen_to_neighbour(tried, width))


def _listen_to_neighbour(tried: _check._LossPoints, width: float) -> Iterator[str]:
    """φ_μ*(u) = φ*(u) + μu²/2 on the same domain, which also makes φ_μ 1/μ-smooth."""
    neighbour = tried.loss.smoothed(width)  # type: ignore[attr-defined]
    if neighbour.gamma != width:
        yield f"has a neighbour smoothed({width:g}) with gamma={neighbour.gamma:g}: it must be the width"
    near = _check._LossPoints(neighbour)
    if not (np.array_equal(near.low, tried.low) and np.array_equal(near.high, tried.high)):
        yield f"has a neighbour smoothed({width:g}) whose conjugate has another domain"
        return
    u = np.concatenate([near.u, tried.ends()], axis=1)
    defect = np.abs(near.of("conjugate", u) - tried.of("conjugate", u) - 0.5 * width * np.square(u))
    allowed = _check._ROUNDING * (1.0 + np.abs(u) * np.abs(tried.label) + width * np.square(u))
    for k in _check._broken(defect, allowed, u):
        yield (
            f"has a neighbour smoothed({width:g}) whose conjugate at u={u[k]:.8g}, y={tried.label[k[0], 0]:g} is off by "
            f"{defect[k]:.3g}: it must be that of the loss plus width*u**2/2"
        )
