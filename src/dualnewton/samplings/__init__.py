"""Samplings Ŝ: random subsets of the examples, drawn as index blocks before the kernels run.

A sampling is given by its pair probabilities P = [Prob(i, j ∈ Ŝ)] (which determine E[M_Ŝ] = P ∘ M), by its law (which
determines E[(M_Ŝ)⁻¹]) and by its draws. For all samplings here P has the form

    P = D(diagonal) + Σ_k weight_k u_k u_kᵀ,

so that each class defines only the few vectors u_k, from which the marginals, the matrix P, the ESO vectors v and
matrix-free products with E[M_Ŝ] for large n follow (:class:`PairStructure`).

Assumption 3 of the paper requires that draws are independent, that every example has a positive probability (properness)
and that the empty set has probability zero (nonvacuity). The constructors raise an error if one of the last two fails.
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
