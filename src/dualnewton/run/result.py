"""The result of a run: the model, its certificate, its status and its trace."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.planning.plan import Plan
from dualnewton.row_arrays import on_host


class Status(enum.Enum):
    """How a run ended; the value of each member is its message. If several apply, the first in this order is the status.

    ``CONVERGED``, ``ROUNDING``, ``STOPPED_BY_CALLBACK``, ``INTERRUPTED`` (Ctrl-C), ``TIME_LIMIT``, ``NO_PROGRESS``,
    ``EPOCH_LIMIT``. The result has the best certified model in every case.

    Examples
    --------
    >>> import dualnewton as dn
    >>> data = dn.data.load("diabetes")
    >>> problem = dn.Problem(data.X, data.y, dn.losses.Squared(), lam=0.01)
    >>> dn.solve(problem, method="sdna", tau=1, max_epochs=1, tol=1e-12, random_state=0).status.name
    'EPOCH_LIMIT'
    """

    CONVERGED = "the certified relative gap is at most tol"
    ROUNDING = "the relative gap is at most tol, but with the rounding errors of P and D it may exceed tol"
    STOPPED_BY_CALLBACK = "the callback asked to stop"
    INTERRUPTED = "the run was interrupted from the keyboard"
    TIME_LIMIT = "time_limit was reached before the certified relative gap reached tol"
    NO_PROGRESS = "no further progress is possible at this precision"
    EPOCH_LIMIT = "max_epochs was reached before the certified relative gap reached tol"

    @classmethod
    def of(cls, found: Certificate, tol: float, reasons: Mapping[Status, bool]) -> Status | None:
        """Return the first status that applies to a model with this certificate; None if its run continues.

        Steps go on while they may bring the gap below ``tol`` less the rounding errors of the certificate.
        """
        if found.meets(tol):
            return cls.CONVERGED
        hopeless = (found.rounding or 0.0) > tol * abs(found.primal)
        met = {cls.ROUNDING: found.relative_gap <= tol and hopeless}
        return next((status for status in cls if met.get(status) or reasons.get(status)), None)

    @classmethod
    def of_final(cls, found: Certificate, tol: float) -> Status:
        """Return the status of a model that no further steps can improve."""
        if found.meets(tol):
            return cls.CONVERGED
        reasons = {cls.ROUNDING: found.relative_gap <= tol, cls.NO_PROGRESS: True}
        return cls.of(found, tol, reasons) or cls.NO_PROGRESS

    @property
    def message(self) -> str:
        """The message of the status."""
        return str(self.value)


@dataclass(frozen=True)
class Progress:
    """One row of the trace, and the argument of a callback.

    Attributes
    ----------
    epoch, seconds : float
        Epochs and seconds since the start of the run, including certificates.
    certificate : Certificate
        The certificate of the best model and the best dual point so far.
    model : int
        The number of the problem in :func:`solve_many`.
    latest : Certificate, optional
        The certificate of the current iterate, which may be worse than the best.
    work_seconds : float, optional
        Seconds of the method's steps alone, without certificates.

    Examples
    --------
    >>> import dualnewton as dn
    >>> data = dn.data.load("diabetes")
    >>> problem = dn.Problem(data.X, data.y, dn.losses.Squared(), lam=0.01)
    >>> seen = []
    >>> _ = dn.solve(problem, callback=seen.append)
    >>> seen[-1].certificate.relative_gap <= 1e-6
    True
    """

    epoch: float
    seconds: float
    certificate: Certificate
    _: KW_ONLY
    model: int = 0
    latest: Certificate | None = None
    work_seconds: float | None = None


@dataclass(frozen=True)
class Trace:
    """The certificates of a run as columns ``epoch``, ``seconds``, ``primal``, ``dual`` and ``gap``.

    Examples
    --------
    >>> import dualnewton as dn
    >>> data = dn.data.load("diabetes")
    >>> problem = dn.Problem(data.X, data.y, dn.losses.Squared(), lam=0.01)
    >>> trace = dn.solve(problem).trace
    >>> float(trace.gap[-1]) <= float(trace.gap[0])
    True
    """

    rows: list[Progress] = field(default_factory=list)

    COLUMNS = ("epoch", "seconds", "primal", "dual", "gap")

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        last = f", last gap {self.rows[-1].certificate.gap:.3g}" if self.rows else ""
        return f"Trace({len(self)} certificate{'' if len(self) == 1 else 's'}{last})"

    @property
    def epoch(self) -> np.ndarray:
        """Epochs since the start of the run."""
        return np.array([row.epoch for row in self.rows])

    @property
    def seconds(self) -> np.ndarray:
        """Seconds since the start of the run, including certificates."""
        return np.array([row.seconds for row in self.rows])

    @property
    def primal(self) -> np.ndarray:
        """The lowest P(w) certified so far."""
        return np.array([row.certificate.primal for row in self.rows])

    @property
    def dual(self) -> np.ndarray:
        """The highest D(α) certified so far."""
        return np.array([row.certificate.dual for row in self.rows])

    @property
    def gap(self) -> np.ndarray:
        """The difference of ``primal`` and ``dual``."""
        return np.array([row.certificate.gap for row in self.rows])

    def to_dict(self) -> dict[str, np.ndarray]:
        """Return the columns by name."""
        return {name: getattr(self, name) for name in self.COLUMNS}

    def to_pandas(self) -> Any:
        """Return the columns as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.to_dict())

    def plot(self, ax: Any = None, *, x: str = "epoch", label: str | None = None) -> Any:
        """Draw the gap against ``"epoch"`` or ``"seconds"`` on a logarithmic scale; return the matplotlib axes."""
        if x not in ("epoch", "seconds"):
            raise DualnewtonError(f'x must be "epoch" or "seconds", got {x!r}')
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots()
        gap = self.gap
        shown = gap > 0.0  # a gap of zero cannot be shown on a logarithmic scale
        ax.semilogy(getattr(self, x)[shown], gap[shown], marker=".", label=label)
        ax.set_xlabel(x)
        ax.set_ylabel("certified duality gap")
        ax.grid(visible=True, which="major", alpha=0.3)
        return ax


@dataclass(frozen=True, eq=False)
class Result:
    """The best model of a run with its certificate.

    Attributes
    ----------
    w, intercept : array of shape (d,), float
        The model with the lowest primal value seen.
    alpha : array of shape (n,)
        The feasible dual point with the highest dual value seen; pass the result as ``warm_start`` to continue from it.
    certificate : Certificate
        P(w, intercept) and D(alpha).
    status : Status
        How the run ended; ``status.message`` describes it.
    n_epochs : float
        The number of epochs: visits of examples divided by n.
    trace : Trace
        The certificates computed during the run.
    plan : Plan
        The method and τ that were used, and the reason.
    scale : float, optional
        σ of the residuals, if it was fitted together with the model.

    Examples
    --------
    >>> import dualnewton as dn
    >>> data = dn.data.load("diabetes")
    >>> problem = dn.Problem(data.X, data.y, dn.losses.Squared(), lam=0.01)
    >>> result = dn.solve(problem)
    >>> result.w.shape, result.alpha.shape, result.status.name
    ((10,), (442,), 'CONVERGED')
    """

    w: np.ndarray
    intercept: float
    alpha: np.ndarray
    _: KW_ONLY
    certificate: Certificate
    status: Status
    n_epochs: float
    trace: Trace
    plan: Plan
    scale: float | None = None

    @classmethod
    def of(cls, pair: CertifiedPair, status: Status, *, trace: Trace, plan: Plan) -> Result:
        """Return the result of a run from its parts."""
        return cls(
            on_host(pair.w),
            pair.intercept,
            pair.alpha,
            certificate=pair.certificate,
            status=status,
            n_epochs=trace.rows[-1].epoch,
            trace=trace,
            plan=plan,
            scale=pair.scale,
        )

    @property
    def converged(self) -> bool:
        """Whether the certificate meets ``tol``."""
        return self.status is Status.CONVERGED

    def __repr__(self) -> str:
        # The arrays of a large problem would fill the screen of an interactive session.
        return (
            f"Result({self.status.name}, w {self.w.shape}, alpha {self.alpha.shape}, "
            f"relative gap {self.certificate.relative_gap:.3g}, {self._epochs()}, method {self.plan.method!r})"
        )

    def __str__(self) -> str:
        last = self.trace.rows[-1]
        return (
            f"{self.status.name}: {self.status.message}\n"
            f"  certificate  {self.certificate}\n"
            f"  effort       {self._epochs()}, {last.seconds:.3g} s\n"
            f"  plan         {self.plan}"
        )

    def _epochs(self) -> str:
        return f"{self.n_epochs:.4g} epoch{'' if self.n_epochs == 1 else 's'}"


def direct_result(pair: CertifiedPair, tol: float, plan: Plan, *, epochs: float = 1.0, model: int = 0) -> Result:
    """Return the result of a model that was computed without steps of the loop."""
    trace = Trace([Progress(epochs, 0.0, pair.certificate, model=model)])
    return Result.of(pair, Status.of_final(pair.certificate, tol), trace=trace, plan=plan)
