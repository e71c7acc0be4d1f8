"""Example 2.3: a quadratic of three variables on which the rates of the three methods differ by a factor of ten thousand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dualnewton import methods, theory
from dualnewton.io import load
from dualnewton.lab._numbers import count
from dualnewton.lab.progress import Steps
from dualnewton.lab.report import Chart, Claim, Curve, Panel, Section, Table
from dualnewton.losses import Squared
from dualnewton.objective.problem import Problem
from dualnewton.samplings import Nice

M = np.array([[1.0, 0.99, 0.9999], [0.99, 1.0, 0.99], [0.9999, 0.99, 1.0]])
SAMPLING = Nice(3, 2)
V = np.full(3, 2.0)
"""The matrix, the sampling and the ESO vector of Example 2.3."""

START = np.array([1.0, 0.0, -1.0])
"""The starting point: the direction of least curvature, along which methods that use only the diagonal of M are slow."""

PRINTED = {
    "E[(M_S)⁻¹]": ((1683.50, -16.58, -1666.58), (-16.58, 33.50, -16.58), (-1666.58, -16.58, 1683.50)),
    "D(p)(E[M_S])⁻¹D(p)": ((0.9967, -0.3268, -0.3365), (-0.3268, 0.9902, -0.3268), (-0.3365, -0.3268, 0.9967)),
}
"""The two matrices with the digits printed in the paper."""

DIGITS = {"E[(M_S)⁻¹]": 0.005, "D(p)(E[M_S])⁻¹D(p)": 5e-5}
"""Tolerance on each matrix: half a unit of the last printed digit."""

RATES = {"σ₁": (0.33501, 5e-6), "σ₂": (1.3332e-4, 5e-9), "σ₃": (3.3333e-5, 5e-10)}
"""The rates with half a unit of their last digit; the paper prints fewer digits, and names the third rate σ₂ by mistake."""

LONG, SHORT = 80_000, 2_000
"""Iterations of Methods 2 and 3 in a full and in a quick run; by Theorem 3, Method 3 needs up to 69 078 for a factor of ten."""

FEW = 40
"""Iterations of Method 1, which then reaches rounding error."""

MANY, SEVERAL = 400, 5
"""Runs averaged for Method 1 and for the others. Method 1 needs more because its steps gain either nearly all or nothing."""

SMALL_N, SMALL_TAUS = 12, (1, 2, 4, 8, 12)
"""The number of examples and the set sizes for which σ₁ of Theorem 7 is computed by enumeration of all sets."""


@dataclass(frozen=True)
class Contender:
    """A method of Section 2 with its rate."""

    name: str
    sigma: float
    run: Callable[..., np.ndarray]
    runs: int = SEVERAL
    most: int | None = None

    def values(self, iterations: int, seed: int) -> np.ndarray:
        """Return the mean over the runs of f(x^k)/f(x⁰) for k = 0, 1, …."""
        steps = iterations if self.most is None else min(self.most, iterations)
        f = methods.Quadratic(M)
        runs = [self.run(f, SAMPLING, START, steps, [seed, k]) for k in range(self.runs)]
        level = 0.5 * START @ M @ START
        return np.mean([0.5 * np.einsum("ki,ij,kj->k", x, M, x) / level for x in runs], axis=0)

    @property
    def predicted(self) -> float:
        """The number of iterations after which E[f] is at most a tenth of f(x⁰), by Theorem 3."""
        return math.log(10.0) / -math.log1p(-self.sigma)


def matrices() -> dict[str, np.ndarray]:
    """Compute the two matrices that the paper displays."""
    D = np.diag(SAMPLING.p)
    return {
        "E[(M_S)⁻¹]": np.asarray(theory.expected_inverse(M, SAMPLING)),
        "D(p)(E[M_S])⁻¹D(p)": D @ np.linalg.inv(theory.expected_submatrix(M, SAMPLING)) @ D,
    }


def sigmas() -> dict[str, float]:
    """Compute the three rates, with G = M and v = (2, 2, 2)."""
    return {
        "σ₁": float(theory.sigma1(M, M, SAMPLING)),
        "σ₂": theory.sigma2(M, M, SAMPLING),
        "σ₃": theory.sigma3(M, M, SAMPLING, V),
    }


def contenders() -> list[Contender]:
    """Return the three methods."""
    sigma = sigmas()
    return [
        Contender("Method 1", sigma["σ₁"], methods.method1, MANY, FEW),
        Contender("Method 2", sigma["σ₂"], methods.method2),
        Contender("Method 3 (NSync)", sigma["σ₃"], partial(methods.nsync, v=V)),
    ]


def weight(quick: bool) -> float:
    """Return the weight of the example in the progress bar."""
    return 1.0 if quick else 8.0


def run(steps: Steps, seed: int = 0, *, quick: bool = False) -> Section:
    """Compute the numbers of the example, and run the three methods on it; ``quick`` makes the runs short."""
    steps.begin("example: three methods on a quadratic", weight=weight(quick))
    iterations = SHORT if quick else LONG
    curves = [(one, one.values(iterations, seed)) for one in contenders()]
    small = small_rates()
    return Section(
        "example",
        "Example 2.3: ½xᵀMx in three variables, 2-nice sampling",
        "M is almost singular: its first and third row differ by 10⁻⁴. Method 1 inverts the 2×2 blocks of M, Method 2 "
        "their expectation, Method 3 a diagonal upper bound on the expectation.",
        charts=[chart(curves)],
        tables=[rates_table(curves), *matrix_tables(), small_table(small)],
        claims=[digits_claim(), ratio_claim(), runs_claim(curves), order_claim(small)],
        columns=("method", "iteration", "value"),
        records=[
            (one.name, int(k), float(values[k]))
            for one, values in curves
            for k in _spread(len(values))
            if values[k] > 0.0
        ],
    )


def small_rates() -> list[tuple[int, theory.Rates]]:
    """θ, σ₁ᵖʳᵒˣ and σ₁ of the dual of a small problem, for τ-nice samplings (Theorem 9)."""
    dataset = load(f"dense:{SMALL_N}x6")
    unit_rows = dataset.X
    norms = np.linspace(0.5, 2.0, SMALL_N)  # with equal norms θ = σ₁ᵖʳᵒˣ
    problem = Problem(norms[:, None] * unit_rows, dataset.y, Squared(), lam=1.0 / SMALL_N)
    return [(tau, theory.rates(problem, Nice(SMALL_N, tau))) for tau in SMALL_TAUS]


# Charts and tables ---------------------------------------------------------------------------------------------------


def _spread(length: int) -> np.ndarray:
    """Return indices that are evenly spaced on a logarithmic axis."""
    return np.unique(np.round(np.geomspace(1, max(1, length - 1), 160)).astype(int))


def chart(curves: Sequence[tuple[Contender, np.ndarray]]) -> Chart:
    """Draw f(xᵏ)/f(x⁰) of the three methods and the bounds of Theorem 3."""
    lines = []
    for shade, (one, values) in enumerate(curves):
        k = _spread(len(values))
        k = k[values[k] > 1e-16]
        lines.append(Curve(one.name, k, values[k], shade=shade))
        bound = np.exp(k * math.log1p(-one.sigma))
        lines.append(Curve(f"{one.name}, bound", k[bound > 1e-16], bound[bound > 1e-16], "bound", shade))
    return Chart(
        "example",
        "Convergence of the three methods",
        [[Panel(f"mean over runs that start from x⁰ = {tuple(int(x) for x in START)}", lines)]],
        "iteration k",
        "f(xᵏ) / f(x⁰)",
        "Dotted: (1 − σ)ᵏ, the bound of Theorem 3 on the expectation. A step of Method 1 that draws the first and the third "
        "variable together removes almost all of the error, any other step almost none; its mean therefore falls in jumps "
        "when few runs remain that have not drawn them together. Both axes are logarithmic.",
        x_log=True,
    )


def rates_table(curves: Sequence[tuple[Contender, np.ndarray]]) -> Table:
    """Return the table of rates and of the iterations until f is a tenth of f(x⁰)."""
    rows = [
        [one.name, f"{one.sigma:.5g}", count(math.ceil(one.predicted)), count(_tenth(values), len(values) - 1)]
        for one, values in curves
    ]
    return Table("Rates", ("method", "σ", "iterations to a tenth, bound", "measured"), rows)


def matrix_tables() -> list[Table]:
    """Return the two computed matrices as tables."""
    form = {"E[(M_S)⁻¹]": "{:.2f}", "D(p)(E[M_S])⁻¹D(p)": "{:.4f}"}
    return [
        Table(
            name,
            ("", "", ""),
            [[form[name].format(value) for value in row] for row in matrix],
            "As printed in the paper.",
        )
        for name, matrix in matrices().items()
    ]


def small_table(small: Sequence[tuple[int, theory.Rates]]) -> Table:
    """Return the table of the rates of Theorem 9 on a small problem."""
    rows = [[str(tau), f"{found.theta:.4g}", f"{found.sigma1_prox:.4g}", f"{found.sigma1:.4g}"] for tau, found in small]
    note = (
        f"Squared loss, λ = 1/n, {SMALL_N} rows with norms of 0.5 to 2 in 6 dimensions; σ₁ by enumeration of all sets."
    )
    return Table(
        "θ ≤ σ₁ᵖʳᵒˣ ≤ σ₁ on a small problem", ("τ", "θ (SDCA)", "σ₁ᵖʳᵒˣ (SDNA)", "σ₁ (SDNA, quadratic)"), rows, note
    )


def _tenth(values: np.ndarray) -> float:
    below = np.flatnonzero(values <= 0.1)
    return float(below[0]) if below.size else math.inf


# Claims --------------------------------------------------------------------------------------------------------------


def digits_claim() -> Claim:
    """Test that both matrices and the three rates agree with the paper to the digits printed."""
    off = [np.abs(matrix - np.array(PRINTED[name])).max() / DIGITS[name] for name, matrix in matrices().items()]
    sigma = sigmas()
    off += [abs(sigma[name] - value) / half for name, (value, half) in RATES.items()]
    numbers = ", ".join(f"{name} = {value:.5g}" for name, value in sigma.items())
    return Claim(
        "Both displayed matrices, and σ₁ ≈ 0.3350, σ₂ ≈ 1.333e-4, σ₃ ≈ 0.333e-4 (printed as a second σ₂)",
        "Example 2.3",
        bool(max(off) <= 1.0),
        numbers,
    )


def ratio_claim() -> Claim:
    """Test that σ₁ is ten thousand times σ₃."""
    sigma = sigmas()
    ratio = sigma["σ₁"] / sigma["σ₃"]
    return Claim(
        "The rate of Method 1 is 10 000 times that of Method 3", "Example 2.3", ratio >= 1e4, f"{ratio:.0f} times"
    )


def runs_claim(curves: Sequence[tuple[Contender, np.ndarray]]) -> Claim:
    """Test that the measured iterations of the methods are ordered as their rates are."""
    taken = [_tenth(values) for _, values in curves]
    shown = [f"{one.name} {count(value, len(values) - 1)}" for value, (one, values) in zip(taken, curves, strict=True)]
    return Claim(
        "Method 1 needs fewer iterations than Method 2, and Method 2 fewer than Method 3",
        "Example 2.3",
        taken[0] < taken[1] < taken[2] if math.isfinite(taken[2]) else None,
        f"iterations to a tenth: {', '.join(shown)}",
    )


def order_claim(small: Sequence[tuple[int, theory.Rates]]) -> Claim:
    """Test the inequalities of Theorem 9."""
    one = 1.0 + 1e-9
    holds = [r.theta <= one * r.sigma1_prox and r.sigma1_prox <= one * r.sigma1 for _, r in small]  # type: ignore[operator]
    widest = max(small, key=lambda pair: pair[1].sigma1 / pair[1].theta)  # type: ignore[operator]
    tau, found = widest
    return Claim(
        "θ ≤ σ₁ᵖʳᵒˣ ≤ σ₁ (Theorem 9)",
        f"small problem, τ = {', '.join(str(tau) for tau, _ in small)}",
        all(holds),
        f"at τ = {tau}: {found.theta:.3g} ≤ {found.sigma1_prox:.3g} ≤ {found.sigma1:.3g}",
    )
