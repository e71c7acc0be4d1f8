"""Tuned numbers that the planner passes to solvers, and the sizes of working sets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Crossovers:
    """Sizes from which on one way of computing the same takes less time than another.

    They are the part of the planner's :class:`~dualnewton.planning.tuning.Tuning` that solvers use, without rates of a machine.
    """

    # Largest number of entries of X for which NumPy is used, so that a first fit does not wait for a compiler.
    small_entries: int = 1 << 17
    # Share of nonzero entries above which sparse rows that fit in the cache are made dense, and products with them cost less so.
    expanded_share: float = 1.0 / 3.0
    # Stored entries of sparse rows, for each row whose length differs from that of the row before it, up to which a fit of
    # several passes sorts the rows by their lengths: the end of a row is then predicted right. A pass takes 10 ns less for each
    # such row of 4 to 16 entries, 5 to 8 ns for 25 to 90 entries, and sorting 0.5 to 2 ns for each entry.
    sorted_entries: float = 24.0
    # Matrices
    # Size of the largest dense matrix that is factorised; beyond it, conjugate gradients or working sets are used.
    largest_matrix: int = 4000
    # Largest share of the weighted rows whose weight may have changed for a sum over rows to be updated, not computed anew. With
    # 0.5 mushrooms with unit rows (squared hinge, λn = 1) took 1.06 to 1.11 times as long; 77 other fits took the same time.
    updated_share: float = 0.75
    # Largest share of rows with a nonzero slope for sums over these sparse rows alone. SciPy's product with all rows takes 0.7 to
    # 1.2 times as long as the kernel that skips rows if no slope is zero, 1.4 to 2.2 times at a half, 2.4 to 4.5 at a quarter.
    sloping_share: float = 0.6
    # Dual rounds
    # Largest share of the examples that are active for sweeps over these alone; above it a full sweep costs little more.
    active_share: float = 0.7
    # Logarithm of the factor by which the residual falls per epoch, from which on dual rounds on a loss with kinks need no
    # joint steps: one costs several epochs, and 20 and more where many examples are free.
    quick_rounds: float = 0.05
    # Logarithm of the factor by which the residual falls per epoch, below which joint steps of the free examples are slow and
    # proximal steps of all examples are tried; and the least number of examples for each feature for that. With 6 to 20 of them
    # and weak penalties these took 0.2 to 0.7 of the time on sparse rows; with 4 or fewer, up to 2.5 times as long.
    slow_face: float = 0.02
    proximal_rows: float = 5.0
    # Largest predicted number of steps of dual rounds, of at most five epochs each, for a fit in one call; beyond it the loop,
    # which also takes joint steps, is faster.
    round_steps: int = 16
    # Epochs after which a fit of Huber's regression at one positive scale ends, where Newton steps in all variables follow:
    # these need a start, not a solution, for which rounds may need 1e5 epochs if the penalty is as weak as the default one.
    scale_epochs: float = 100.0
    # Steps on one dense block
    # Interior-point steps on one dense block leave out examples far from their kinks, if at most this share of the rows remains,
    # and if the block has at least so many entries.
    undecided_share: float = 0.5
    undecided_entries: int = 1 << 14
    # Entries of one dense block from which softmax takes its first steps in float32: for fewer, calls take longer than the
    # arithmetic.
    narrowed_entries: int = 1 << 15
    # Features of one dense block for which a Hessian in float32 takes as long as a pass, and one in float64 twice as long.
    hessian_features: int = 12
    # Multiplications of the Hessian of a piecewise quadratic loss on one dense block from which it is computed from the last one,
    # by the rows whose curvature has changed; and features above which such a Hessian is summed in float32, which costs a step.
    updated_products: int = 1 << 19
    updated_features: int = 24
    # Entries of one dense block with many rows for each feature up to which Huber's regression begins at least squares over all
    # rows; for more, at the solution of a sample.
    parabola_entries: int = 7 << 16
    # Conjugate gradients on a variable for each row, in float32, in the time of a gradient over all features and of the minimum
    # over the span of all gradients so far, for fewer rows than features.
    gradient_products: int = 4
    # Pairs of stored entries of sparse rows that are summed to a Hessian in the time of a pass over one stored entry.
    pass_pairs: float = 3.0
    # Cube of the number of features, whose Hessian is factorised in the time of a pass over one stored entry.
    pass_cubes: float = 100.0
    # Largest number of classes times features for which L-BFGS for several classes goes on from the Hessian of all of them, if
    # those of single classes are too slow. At 1400 that is factorised in 50 ms, as long as 50 to 100 passes over 1200 rows.
    joint_classes: int = 2000
    # Ratio of a diagonal entry of the Hessian to their mean from which on its feature is heavy, and the share of the trace of
    # heavy features from which on conjugate gradients are scaled by the diagonal. Where all features are about as frequent,
    # scaling delays the decrease of the gap.
    heavy_feature: float = 4.0
    heavy_trace: float = 0.25
    # Coefficients of several outputs in use up to which the Newton steps of a proximal point factorise their matrix; beyond,
    # they factorise two matrices with a row for each feature.
    factorised_unknowns: int = 60
    # Features above which models of several outputs on a block of more than ``small_entries`` entries are left to block
    # coordinate descent, which is compiled.
    persistent_features: int = 128
    # Share of the features that violated the optimality conditions before some of them were gathered. If more than this share
    # still violate them, most are expected to be used, and coordinate descent follows. This is for a ridge and more features than
    # examples: then the features in use may outnumber the examples.
    pulled_share: float = 0.75
    # Unknowns of several models with kinks up to which their Newton systems are solved as one block diagonal matrix: the calls
    # of LAPACK for each model take longer than the zeros. (Three models of 5 to 14 unknowns: up to 11 % of the fit.)
    joined_unknowns: int = 64
    # Working sets
    least_set: int = 64  # number of features of a working set whose matrix is always formed
    # Coordinates of a quadratic model (of a path, or of a proximal Newton step) up to which single ones become zero or nonzero,
    # with a linear system for each, before proximal point steps are tried.
    exchanged_coordinates: int = 32
    gathered_features: int = 16  # features up to which all are gathered at once from one dense block
    # Largest number of multiplications n m min(n, m) for which all m features that violate the conditions are gathered at once
    # from a block with d ≤ n; for more, the minimum over the strongest of them is computed first.
    gathered_products: int = 1 << 24
    # Share of the features with a slope beyond their threshold at w = 0 above which the matrix of all is computed at once.
    walk_share: float = 0.7
    # Features count as independent if the sum of what each explains alone is at most this multiple of what they explain together
    # (or of the squares of the targets): the ratio is about one for independent features, most of which are then used.
    shared_share: float = 2.0
    # Sweeps over m dense features of n rows that are tried before linear systems: the first number times m, for the cost of the
    # products, plus the second times m²/n, for that of the systems; and the least number that is worth a copy of all features by
    # columns.
    product_sweeps: float = 1.0 / 40.0
    system_sweeps: float = 1.0 / 3.0
    fewest_sweeps: int = 10
    # Number of features whose matrix is formed even if they are more than the rows of one dense block.
    wide_matrix: int = 512
    # Ratio of consecutive penalties from w = 0 to the wanted one, with more features than examples.
    path_ladder: float = 0.3
    thin_share: float = 0.05  # share of nonzero entries up to which gathered features stay sparse
    # A working set's matrix is not formed if it has more entries than this multiple of the features' stored entries.
    matrix_entries: float = 2.0
    # Coordinates of a working set up to which one kernel does sweeps and Newton steps; beyond it, LAPACK factorises faster.
    kernel_coordinates: int = 1 << 10
    # Coordinate descent over m features, u of them in use, costs as much as a Newton step after u²/m sweeps divided by this
    # number; the second is for several outputs, whose sweeps are over blocks.
    sweeps_divisor: float = 36.0
    joint_sweeps_divisor: float = 4.0
    joint_factor: int = 1500  # features in use up to which a Newton step over several outputs factorises its matrix
    # Sweeps over features, among which Newton steps count as many as cost the same, for one strength of a path, after which
    # matrices of more features than those in use are formed for the weaker ones.
    path_sweeps: int = 5000
    # Largest relative change of the curvature by single precision, by the estimate of ``noise_of``, up to which slow conjugate
    # gradients are followed by L-BFGS from a Hessian in float32.
    single_noise: float = 100.0

    def by_entries(self, stored: float, features: float) -> bool:
        """Whether sparse features with this many stored entries are updated one by one, without their matrix."""
        return self.matrix_entries * stored < features**2


USUAL = Crossovers()
"""The default numbers."""


@dataclass(frozen=True)
class Sizes:
    """How many coordinates a step takes, and whether it forms their matrix: comparisons of costs, made by the planner."""

    every: bool  # whether each step is over all coordinates
    # Minimum and maximum number of coordinates of a working set; zero if all take part.
    least: int
    most: int
    tuning: Crossovers = USUAL  # tuned numbers of the solver
    # Number of features from which on a Newton step costs more than a pass: models of so many are solved roughly while others
    # may be missing.
    rough: int | None = None
    kept: int = 0  # maximum number of coordinates of a matrix that is kept for later steps

    def is_rough(self, features: int) -> bool:
        """Whether models of this number of features are solved roughly while others may be missing."""
        return self.rough is not None and features >= self.rough
