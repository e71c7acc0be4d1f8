"""Samplings Ŝ: random subsets of the examples, drawn as index blocks outside every kernel.

A sampling is known by its pair probabilities P = [Prob(i, j ∈ Ŝ)] (for E[M_Ŝ] = P ∘ M and everything that follows from
it), by its law (for E[(M_Ŝ)⁻¹]) and by its draws. All the samplings here share one shape of P,

    P = D(diagonal) + Σ_k weight_k u_k u_kᵀ,

so that each class states the few vectors u_k once and the marginals, the matrix, the ESO vectors v and matrix-free
products with E[M_Ŝ] for large n all follow (:class:`PairStructure`).

Assumption 3 of the paper asks that draws be independent, that every example have a positive probability (properness)
and that the empty set have none (nonvacuity). The constructors refuse what breaks the last two.
"""

from dualnewton.samplings.base import IndexBlock, PairStructure, Sampling
from dualnewton.samplings.laws import Explicit, Independent, Nice, Partition, Serial, Shuffled

__all__ = [
    "Explicit",
    "Independent",
    "IndexBlock",
    "Nice",
    "PairStructure",
    "Partition",
    "Sampling",
    "Serial",
    "Shuffled",
]
