"""The numbers by which costs are predicted; each was measured, or chosen by measurements.

``benchmarks/calibrate.py`` measures them, and ``tests/planning/test_regret.py`` bounds how much slower the resulting plans are
than the fastest method on recorded times. They are one argument of a run, so that a test can pass its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from dualnewton._cached import cached_property
from dualnewton.planning.rates import GPU, Rates
from dualnewton.solvers.crossovers import Crossovers


@dataclass(frozen=True)
class Tuning(Crossovers):
    """All tuned numbers: those of solvers, which it inherits, and those of the planner.

    A *pass* is one evaluation of the objective and its gradient on all examples; an *epoch* visits each example once. A *sketch*
    is a Hessian estimated from sampled rows. The cost of a sketch is often stated in passes.
    """

    rates: Rates = field(default_factory=Rates)  # machine rates
    gpu: Rates = GPU  # rates of a GPU, for data on a GPU
    # Limits of small problems
    # Largest number of entries of X for which problems are solved directly on one dense block of rows.
    direct_entries: int = 1 << 20
    # Largest numbers of rows and entries of X for which interior-point steps on fewer rows than features use one dense block.
    direct_rows: int = 1024
    direct_wide_entries: int = 1 << 23
    # Factor by which interior-point steps on one dense block are faster than those by passes are predicted to be, and a
    # margin.
    direct_gain: float = 8.0
    # Most multiplications of a Hessian, nd², for which Newton's method makes sparse rows of more than ``small_entries``
    # entries dense; the second for rows with few pairs of stored entries.
    direct_hessian: float = 6.4e7
    thin_hessian: float = 2.1e7
    # Least number of features, and largest number of stored entries, for which Newton's method on sparse rows solves its
    # systems by conjugate gradients in one call: with fewer features matrices cost little, and kernels read more entries
    # faster. The third is a factor on that number for strong penalties, and for several classes and fewer examples than
    # features: other methods took 1.2 to 4 times as long for 0.6 to 4 million entries.
    product_features: int = 64
    product_entries: int = 1 << 19
    product_growth: int = 8
    # Multiplications of all Hessians of a fit, nd² each, from which on small data with fewer than ``product_features`` features
    # are also fitted by conjugate gradients: with 22 to 60 features and losses that need several Hessians, in 0.5 to 1.0 of the
    # time.
    product_hessians: float = 1.2e7
    # For Newton's method on one dense block to begin by conjugate gradients: the least number of rows for each feature, for
    # losses that are piecewise quadratic or have no γ; and the least number of conjugate gradients that cost as much as a
    # Hessian, also for quadratic losses, which need one Hessian. Other losses then take 0.4 to 0.75 of the time of Newton's
    # method with Hessians on tables of 1000×250 to 3000×100; at worst, where features are nearly dependent, 1.8 times.
    product_rows: float = 2.5
    fewest_products: int = 28
    quadratic_products: int = 40
    # The least number of conjugate gradients for a block of more than ``direct_entries`` entries, unless the loss is quadratic,
    # and its largest number of entries: with 1000 features and more, other methods took 1.6 times as long in the mean of 168
    # fits; in some, 0.4 times. For a quadratic loss they took 1.9 times as long with 600 to 700 features.
    block_products: int = 70
    product_block: int = 1 << 22
    # Factor by which the conjugate gradients on sparse rows, no fewer than features, are predicted to be too many: frequent
    # features have most of the trace of their Hessians, and with many rows for each feature the eigenvalues lie close together.
    # The second is for a quadratic loss, whose one Hessian costs what is predicted. The third limits the conjugate gradients,
    # whose cost is predicted from the decrease of the gap: beyond this multiple of the cost of the other methods, these continue.
    product_optimism: float = 8.0
    quadratic_optimism: float = 2.0
    product_patience: float = 4.0
    # Fraction of the cost of a Hessian and its step below which the products of least squares, whose number is predicted too low
    # for rows that share directions, are tried where the Hessian is summed over pairs of stored entries in one call. Above it
    # they took 1.6 times as long in the mean of 85 fits, and 0.94 times at best.
    few_products: float = 0.25
    # The same for losses that need several Hessians, most of which are summed over few rows. In 248 fits of 13 sets of 5000 to
    # 100000 rows, with λn of 3 to 3000, the choice took 1.01 times as long as the faster way in the mean, 1.4 times at worst;
    # with 0.25 it took 1.09 times as long, and 2.3 times.
    fewer_products: float = 0.15
    # Most passes that a Hessian may cost that is summed over pairs of stored entries in one call, for losses that need several of
    # them: up to 5, these fits took 0.75 of the time of other methods in the mean of 92; beyond, 1.3 times that of conjugate
    # gradients.
    stored_passes: float = 5.0
    # Rows for each feature below which conjugate gradients, where these are chosen, cost less than such Hessians and their
    # factors: 0.5 to 1.0 of the time with 13 to 18 rows for each feature.
    stored_rows: float = 20.0
    # For other losses the factor ``product_optimism`` is used in two cases. First, if dual rounds are predicted to cost at most
    # this multiple of a Hessian and its steps: their prediction may be wrong by a factor of three, and they follow if conjugate
    # gradients are slow. Second, if the mean squared cosine between two rows is at most this multiple of 1/d, its value for
    # isotropic random rows: conjugate gradients then took 0.4 to 0.8 of the time of sketches (uniformly sparse rows), otherwise
    # 1.2 to 2 times as long (a9a, mushrooms, most one-hot rows).
    product_rounds: float = 2.0
    isotropic_rows: float = 2.0
    # Cost of a fit by these conjugate gradients, in systems that are solved to the wanted gap: all but the last are solved
    # roughly. And the largest predicted number of them in a system of a logistic loss with fewer examples than features.
    product_systems: float = 2.0
    fitted_products: float = 10.0
    # Largest number of stored entries of sparse rows for which all dual rounds of a fit are done in one call, without the
    # certificates and comparisons of the loop: beyond, these take little of the time.
    round_entries: int = 1 << 19
    # Least number of features for each example for this with a weak penalty; and the ratio of the mean of ‖a_i‖² to λn from which
    # on a penalty is weak.
    round_features: float = 1.0
    round_conditioning: float = 4.0
    # Largest number of stored entries of rows, fewer than features, for which dual rounds on smooth losses are done in one call,
    # and the most epochs that are predicted for them: news20 with unit rows took 0.75 to 0.9 of the time with 7 to 32 predicted.
    many_round_entries: int = 1 << 22
    many_round_epochs: float = 40.0
    # Largest number of features, and of entries of X in units of ``direct_entries``, for which softmax is solved on one dense
    # block, by L-BFGS from a d×d Gram matrix. Beyond 512 features, sketches missed the tolerance in 8 of 16 fits of 1233×859,
    # L-BFGS in 2.
    class_features: int = 1024
    class_blocks: int = 2
    # Least ratio of examples times classes to features for which softmax is solved by L-BFGS with more features than examples.
    class_coordinates: float = 2.0
    # Examples times classes up to which, with more features than examples, Newton's method solves softmax on the span of the
    # rows; and examples up to which L-BFGS does, beyond.
    class_newton: int = 128
    class_rows: int = 1024
    # Softmax computes new Hessians of single classes where they are expected to save more than ``class_passes`` passes and one
    # for each ``class_hessian`` features, and the joint one of all K classes for more than (K − 1)/2 for each ``joint_hessian``,
    # and at least ``joint_passes``. That takes 0.94 of the time of 5 passes and 8 features for it, too (35 tables of 250 to 3000
    # rows, 7 to 70 features, K = 3 or 5).
    class_passes: int = 5
    class_hessian: float = 8.0
    joint_passes: int = 3
    joint_hessian: float = 3.0
    # Least share of the pairs of entries in a row that are stored, for which sums of products over dense rows cost less.
    dense_pairs: float = 0.02
    # Largest number of entries of X, times the number of models, for which Newton steps of small models are batched.
    together_entries: int = 1 << 17
    # Largest number of entries of X for which interior-point steps of several models are batched.
    kinks_together: int = 1 << 13
    # Least number of entries of dense and of sparse rows for each thread that predictions count.
    thread_entries: int = 1 << 19
    sparse_thread_entries: int = 1 << 17
    # Largest number of features for which Newton's method on small data factorises the d×d Hessian of one dense block, in
    # well under a millisecond.
    one_block_features: int = 256
    # Largest number of features for which block coordinate descent over the features of several columns runs in NumPy.
    numpy_features: int = 32
    # Largest number of features for which Huber's regression takes Newton steps in all variables, for d ≤ n and for d > n.
    joint_scale_features: int = 2000
    joint_scale_wide_features: int = 500
    # Rows per feature from which small data with more than ``one_block_features`` take these steps on one dense block.
    joint_scale_rows: float = 1.5
    # Largest number of examples for which a NumPy round of SDNA takes all of them as one block.
    numpy_single_block: int = 512
    numpy_block: int = 256  # examples per NumPy round of SDNA on larger data
    # Examples per NumPy round of minibatch SDCA: few, since more of them shorten its steps, but more than one, for a round
    # takes as long in the interpreter as the arithmetic of many examples.
    numpy_sdca_block: int = 16
    # Examples per round of SDNA on long dense rows that exceed the cache, and the least number with a regularizer whose ∇g* is
    # computed for all features at once; and the number of features from which on rows are long. For 30 to 100 features an epoch
    # of rounds on 8 examples took 1.4 to 2.2 times as long as one of single examples, for 500 and 2000 0.95 to 1.2 times.
    dense_block: int = 8
    block_features: int = 256
    # Largest number of entries of dense rows of which such rounds read a copy in float32 (1 GiB); the least norm of a row, in the
    # mean, whose entries float32 holds (its inverse is the largest); the largest gap that rounding these entries may leave, as a
    # fraction of the wanted one; and the loosest tolerance: fits to looser ones take less than three epochs, which the copy would
    # not shorten.
    narrow_entries: int = 1 << 28
    narrow_rows: float = 1e-12
    narrow_share: float = 0.1
    narrow_loosest: float = 1e-2
    norm_sample: int = 256  # number of sampled rows from which the mean squared norm of all rows is estimated
    overlap_sample: int = 64  # number of sampled rows from which the mean squared cosine between rows is estimated
    largest_conditioning: float = 1e100  # upper limit on the estimated conditioning, so that predictions stay finite
    # Least number of features for which a fit stores dense rows by their nonzero entries, if at most ``thin_share`` of all
    # entries are nonzero.
    entry_features: int = 256
    # Predicted effort
    predicted_gap: float = 1e-6  # relative gap to which the effort of smooth losses is predicted
    starting_gap: float = 3.0  # ln(relative gap at w = 0 divided by the conditioning)
    newton_passes: float = 8.0  # passes of Newton's method from w = 0 to a relative gap of 1e-6
    # Passes of Newton's method near the optimum, for a quadratic loss, and on the dual with all examples in one block.
    last_passes: float = 2.0
    near_passes: float = 4.0  # same from the solution of a similar problem (warm start)
    certificate_passes: float = 3.0  # passes for certificates and for the first evaluation
    # Number of selections of rows by their weights that take as long, apart from reading the weights, as the call of a pass.
    selections_per_call: float = 3.0
    # Sketches per run of sketched Newton from w = 0; and for quadratic losses, or from the solution of a similar problem.
    sketches: float = 5.0
    settled_sketches: float = 1.5
    # A step on a sketch of more rows than features divides the gap by this power of √(rows/features).
    sketch_power: float = 1.5
    doublings: int = 6  # sizes of sketches that are compared, each with twice the rows of the one before
    # If a sketch costs more than ``dear_sketch`` passes, sketched Newton starts with a diagonal Hessian: the least number of
    # passes it then takes; the share of badly conditioned runs that need a sketch later; and the multiple of these passes
    # that the bound of conjugate gradients exceeds in a badly conditioned run.
    diagonal_passes: float = 25.0
    sketch_needed: float = 0.8
    slow_diagonal: float = 4.0
    # For losses with piecewise constant φ″ (squared hinge): the share of rows whose φ″ changes in a Newton step. With 0.1 dense
    # rows of 250 and 400 features took 1.1 to 4 times as long; with 1 sparse ones of 120 features took 1.5 times as long.
    changed_rows: float = 0.5
    # Passes of sketched Newton for softmax with K classes, whose Hessian leaves out the coupling between classes:
    # per root · √K + ln(conditioning) √(Kd/n) (slowdown + spread · s), where s is the standard deviation of ln(1 + E[a_j²]/λ)
    # over the features. With few rows per coefficient most rows are separated, and the Hessian changes on the way. A
    # direction that all classes share has the curvature λ only; if the features have equal scales, a few L-BFGS corrections
    # cover all these directions.
    softmax_passes_per_root: float = 4.5
    softmax_slowdown: float = 3.0
    softmax_spread: float = 1.5
    softmax_hard: float = 100.0  # passes p by this formula become p(1 + p/hard): hard problems take more than it says
    # The time of its steps as a multiple of a pass: solves, corrections and certificates included.
    softmax_step: float = 2.0
    # Newton steps for softmax from w = 0 to a relative gap of 1e-6: steps + factor · ln(conditioning).
    softmax_steps: float = 3.0
    softmax_steps_per_log: float = 0.6
    # For softmax: the share of the rows with a noticeable weight in the Hessian block of a pair of classes, over all steps.
    paired_rows: float = 0.4
    # Epochs of SDNA to a relative gap of 1e-6: fixed + factor · conditioning.
    epochs_fixed: float = 4.0
    epochs_per_conditioning: float = 2.5
    numpy_epoch_passes: float = 10.0  # passes that cost as much as the products with X in an epoch of NumPy rounds
    kinked_epochs: float = 6.0  # factor on these epochs if the regularizer has kinks or bounds
    # Epochs of dual rounds on a piecewise linear loss, without smoothing, to a relative gap of 1e-4: fixed + factor ·
    # √(R/λn), with the mean R of c_i‖a_i‖². Measured by ``benchmarks/kinks.py``: actual numbers are 0.2 to 4 times the
    # prediction.
    kinked_rounds_fixed: float = 6.0
    kinked_rounds_per_root: float = 15.0
    # "auto" begins with this many epochs of SDNA, if they cost at most this share of the primal method's cost, on data with
    # fewer rows than this multiple of the features. With a share of 0.25 instead of 0.15, SDNA ended 10 of 112 random fits that
    # sketches ended before, in 0.63 of the time in the mean (0.25 to 1.38).
    trial_epochs: float = 3.0
    trial_share: float = 0.25
    trial_rows: float = 2.5
    # Predicted cost of solving a loss with kinks through smoothed losses, as a multiple of that of the first of them.
    smoothing_stages: float = 40.0
    # Number of reads of rows on disk with smoothed losses, and with the interior-point method (``benchmarks/DISK.md``).
    smoothing_reads: float = 45.0
    interior_reads: float = 110.0
    # Epochs of dual rounds on a loss with kinks after which their speed is known; and largest share of the cost of a cheaper plan
    # at which they are tried first. With λn = 1 rows of 50 to 150 features (shares of 0.08 to 0.1) took 1.3 to 5 times as long
    # with a trial, rows of 400 features (0.05) 1.2 to 1.3 times.
    kinked_trial_epochs: float = 10.0
    kinked_trial_share: float = 0.07
    # Steps of the interior-point method to a relative gap of 1e-6; and in each, pairs of products with X and its
    # transpose (refinements included), and operations on a row's slopes that cost about as much as its loss.
    interior_steps: float = 18.0
    interior_passes: float = 4.0
    interior_vectors: float = 20.0
    # Centrality corrections per step of that method, used if its matrix costs more than this many pairs of products.
    interior_corrections: int = 2
    correction_passes: float = 6.0
    # Least ratio of examples to sampled rows for which a kinked loss is solved on a sample, then on few rows and mean rows;
    # and the rows of that sample, as a multiple of (n√d)^(2/3).
    aggregated: float = 4.0
    aggregated_sample: float = 2.0
    working_set_steps: float = 8.0  # proximal Newton steps over working sets
    # Least share of the features (of the examples, if fewer) with nonzero coefficients at the optimum.
    used_share: float = 0.25
    column_sweeps: float = 15.0  # coordinate sweeps per proximal Newton step without a matrix
    # Switching between methods
    # A run changes its method if another is predicted to be cheaper by this factor for the remaining work; the second
    # for a dual method that would not end within the limit of epochs.
    switch_margin: float = 1.3
    limit_margin: float = 0.05
    switch_window: int = 2  # least number of steps of the loop over which the speed of the current method is measured
    # For a primal method that takes over near the optimum: passes before it converges fast, and the largest ln(factor) by
    # which a pass is assumed to divide the gap.
    restart_passes: float = 5.0
    fastest_pass: float = 3.0
    renewed_sketches: float = 0.25  # sketches per pass of sketched Newton that takes over near the optimum
    slowest_epoch: float = 1e-3  # least ln(factor) per epoch that is assumed for the current method
    rounding_gap: float = 1e-12  # relative gap below which a primal method that is stuck is not replaced by a dual one
    # A primal method may be replaced after it has cost this multiple of its prediction; the same for softmax, whose sketches
    # lack the coupling between classes, which Newton's method has.
    overrun: float = 3.0
    softmax_overrun: float = 1.0
    # Sketches
    # Costs in passes: a cheaper sketch is renewed at every step; a more expensive one is computed only if steps are slow.
    cheap_sketch: float = 0.5
    dear_sketch: float = 4.0
    # For softmax: steps since the last sketch, and steps left, in multiples of the cost of a new Hessian for each class.
    renewal_margin: float = 2.0
    # Steps over which the speed on a sketch is measured; and the least and the most steps before the first measurement.
    speed_window: int = 4
    shortest_wait: int = 2
    longest_wait: int = 8
    # Bounds on the ln(factor) by which the first steps on a new sketch are expected to divide the gap; and the least that is
    # assumed for further steps on a sketch, however slow they are.
    fastest_step: float = 3.0
    slowest_step: float = 0.5
    stalled_step: float = 0.01
    # A sketch is noisy if its first step leaves more than this fraction of gᵀB⁻¹g (far from the optimum; near it, more than
    # ``fastest_step`` says), or is shorter than this fraction of the Newton step.
    noisy_decrement: float = 0.5
    noisy_step: float = 1e-3
    # The curvature changes quickly if a later step is shorter than this fraction of the Newton step.
    unstable_step: float = 0.1
    # Costs in passes: the limit for a first sketch of fewer rows than features, and the limit for any sketch.
    light_sketch: float = 2.0
    dearest_sketch: float = 100.0
    # With fewer rows than features: the speed of conjugate gradient steps grows with this power of the rows.
    rows_exponent: float = 0.4
    sketch_rows: int = 4  # rows per feature with which a sketch estimates the Hessian well
    # For a run that starts on samples of the rows: rows per unknown of the first, ratio of consecutive samples, and largest
    # share of all rows.
    sample_rows: int = 64
    sample_growth: int = 4
    sample_share: float = 1.0 / 8.0
    # Time of copying the rows of a sample, as a multiple of a pass over them: 3 for 26,000 rows of 100 features, 9 for 103,000,
    # whose copy is in memory that is new to the process.
    sample_copy: float = 4.0
    # For proximal Newton steps: least number of rows of a sample per coefficient in use (with fewer, hardly a step on all rows is
    # saved), and the number of calls of a pass that take as long as those of a step (0.6 ms).
    fewest_sample_rows: float = 16.0
    proximal_calls: float = 4.0
    # A step that is expected to leave at most this fraction of the wanted gap is certified without an evaluation.
    skipped_gap: float = 0.6
    # Newton steps on the first sample (1 to 10, four on average over losses and condition numbers) and on each later one.
    first_sample_steps: float = 4.0
    later_sample_steps: float = 1.25
    # Bounds on the number of L-BFGS correction pairs; between them, the number that costs this share of a pass.
    least_memory: int = 10
    most_memory: int = 40
    memory_share: float = 0.5
    always_square: int = 128  # largest number of features for which a d×d Hessian is formed, however few the rows
    # Largest number of features for which paths of least squares use the moments of all features, however few the rows.
    moment_features: int = 256
    # Least number of multiplications of a Gram matrix for which single precision is considered.
    single_products: float = float(1 << 22)
    # Products with X that correct a solve with a matrix in single precision for one output, where the ridge is too small for it.
    correcting_products: int = 3
    # Working sets
    # For quadratic losses, whose matrix is computed once, and for sparse rows, of which the matrix of some features
    # costs more per entry than that of all, all features are used up to this multiple of those whose matrix costs a
    # pass, and up to this number.
    large_set_factor: float = 3.0
    most_together: int = 2000
    # Largest number of features for which NumPy solves the systems of all models of a path at once, instead of a kernel.
    numpy_path_features: int = 24
    path_entries: int = 1 << 27  # limit on the entries of all matrices that the models of paths keep
    # Paths of sparse features visit stored entries, instead of solving systems with the moments of all features, where the
    # cube of the number of features exceeds this multiple of the stored entries.
    entry_path_cube: float = 2000.0
    # Largest number of stored entries for which one least-squares model with thresholds is fitted by coordinate descent over them
    # in one call; for more of them, passes in several threads are faster.
    entry_fit: int = 1 << 21
    # The same as ``entry_path_cube`` for one such model. Correlated features (dummy variables, words) take many more sweeps than
    # independent ones, while the matrix of all of them costs the same.
    entry_fit_cube: float = 64.0
    # The same for dense features, of which a copy by columns is made (128 MiB).
    swept_entries: int = 1 << 24
    summed_features: int = 256  # largest number of features whose matrix that model may compute at once
    # Such a path over more features than rows uses kernels even on small data, with more rows than the first number, and more
    # entries of X than this share of ``small_entries``.
    wide_walk: int = 32
    wide_walk_share: float = 0.25
    # Direct solutions
    # Largest number of rows of a matrix for methods that factorise several of them, where others exist: the linear systems of
    # piecewise linear losses (free examples), the path to one least-squares model (min(n, d)), the Hessians of the folds of a
    # logistic grid, and those by which cross-validation bounds the scores of exact fits.
    repeated_matrix: int = 2000
    # Relative gap below which the system that solves a piecewise linear loss may cost this multiple of the stage before it.
    late_kink_gap: float = 1e-8
    late_kink_factor: float = 4.0
    # Largest number of multiplications for which the n×n or d×d Gram matrix is computed directly.
    direct_multiplications: float = 1e9
    # The same if all values and folds of a logistic grid share the n×n matrix: with 10 values and 5 folds the searches took 0.3
    # to 0.9 of the time with 1.8e9 to 2e10.
    grid_multiplications: float = 1e10
    # Least number of affordable gradients for which a problem with n < d is first solved in the span of gradients.
    fewest_directions: int = 5
    # Least number of rows per feature for which least squares without a penalty sums its normal equations; and the number of
    # features, or of rows if these are fewer, from which on it does so in any case: below, a decomposition of X takes no longer.
    fewest_rows: int = 8
    fewest_squared: int = 40
    # The most conjugate gradients by which it begins on sparse data. And the time of what follows where they do not suffice:
    # normal equations and the proof that they are regular, as a multiple of their matrix and its factor (3 to 4 for 1000 to 2000
    # features), and a decomposition of X, as a multiple of nd min(n, d) multiplications (5 to 8).
    squares_products: int = 1000
    normal_equations: float = 3.0
    decomposition: float = 5.0
    # Largest number of features (in ``RidgeCV``, or examples) for which cross-validation solves each fold from d×d or n×n
    # moments.
    fold_decomposition: int = 1500
    # Cholesky factors of a matrix that cost less than its eigenvalues and eigenvectors: these take as long as 13 to 17 of
    # them with 150 to 1000 rows, and as long as 6 with 50 rows.
    spectrum_factors: int = 10
    # Limit on the numbers in the moments of all folds that cross-validation of multi-task models keeps in memory (256 MiB).
    fold_moments: int = 1 << 25
    # Features up to which paths of multi-task models use these moments also if there are fewer rows: the compiled path took a
    # sixth to a half of the time of gathered columns with 50 to 150 features, and more time for the Lasso from 220 on.
    joint_moment_features: int = 160
    # Limit on the rows times the models of all values and folds that cross-validation on a cluster fits together: memory of
    # the workers for each array of margins (128 MiB). Shared passes took less time for all sizes measured.
    shared_margins: int = 1 << 24
    # Limit on the cost in passes of a Hessian that the values and folds of a logistic grid share.
    fold_hessian_passes: float = 50.0
    # The same cost, in passes over all folds, for small sparse data, whose Newton systems conjugate gradients solve otherwise;
    # for several classes that of joint Hessians of all folds. At up to 2 passes searches took 0.5 to 1.3 of the time, 0.7 in the
    # mean, at 2 to 40 they took 0.75 to 3 times as long.
    fold_thin_hessian: float = 2.0
    # Limit on the cost of a joint Hessian of all classes for each fold, in passes over the models of all folds. Searches that
    # would cost 2 to 7 of them by this count take 0.82 to 1.06 of the time of those in which classes share one, at 9 to 19 1.03
    # to 1.5 of it.
    fold_joint_hessians: float = 7.0
    # Limit on the cost of Hessians of all classes that the folds share, in passes over the models of all folds. At 4 to 7 they
    # save up to half of the time of a search, at 19 to 23 they add half.
    fold_class_hessians: float = 10.0
    # Σ|change|/Σ of the curvatures of the rows above which this Hessian is computed again. On tables of 300×10 to 20000×200,
    # 0.2 to 0.5 take the same time, 0.1 up to a fifth more, and 0.7 half as long again.
    fold_hessian_change: float = 0.3
    # The same for small sparse data, whose Hessian costs at most ``fold_thin_hessian``: 0.02 to 0.2 take 5 % less than 0.3.
    fold_thin_change: float = 0.1
    # Least number of features for which the Hessians of dense rows are summed in single precision: in 0.6 to 0.7 of the time.
    fold_single_features: int = 64
    # Passes to the models of the folds for the last value of a grid from which on the next ones start at the lowest combination
    # of known models, which costs one to three passes.
    combined_passes: float = 10.0
    # Largest number of entries of X, and least number of rows for each feature, for which the models of a grid start at w =
    # 0: certificates of their starts take longer than the steps that they save.
    cold_entries: int = 1 << 15
    cold_rows: int = 4

    def on_gpu(self, streamed: int) -> Tuning:
        """Return these numbers with the rates of a GPU, to which rows with so many bytes per entry are streamed, if any.

        The result is kept with the object: costs are needed for each pass, sample and sketch of a fit, and a copy of all numbers,
        or their hash, takes longer than a lookup.
        """
        found: Tuning = self.kept(
            ("GPU", streamed),
            lambda: replace(self, rates=self.gpu.streamed(streamed) if streamed else self.gpu),
        )
        return found

    def kept(self, kind: Hashable, value: Callable[[], Any]) -> Any:
        """Return a value that follows from these numbers and ``kind`` alone, computed at its first use.

        Small fits of one kind share it: to predict costs takes as long as a product with their rows.
        """
        if kind not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[kind] = value()
        return self._kept[kind]

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        """The values that are kept, which are no settings: checkpoints leave cached properties out."""
        return {}


KEPT = 1 << 10
"""Number of values that are kept with a tuning."""

DEFAULT = Tuning()
"""The default tuning of runs."""
