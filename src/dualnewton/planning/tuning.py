"""The numbers by which the planner predicts costs: each was measured or guessed once, and none follows from a formula."""

from __future__ import annotations

SMALL = 1 << 17
"""Entries of X up to which NumPy serves: a first fit must not wait for a compiler."""

WHOLE = 512
"""Up to this many examples one NumPy round takes all: its Cholesky factor costs less than the rounds it saves."""

NUMPY_BLOCK = 256
"""Beyond, the τ at which a NumPy round's own arithmetic has outgrown the interpreter that calls it."""

NUMPY_ROUND = 1e-4
"""Seconds of interpreter and small LAPACK calls in a NumPy round."""

COMPILING = 0.25
"""Seconds that kernels take to load from the cache (to compile them takes ten times as long, once). Rounds of a τ that was asked
for are compiled on small data, too, where NumPy rounds are predicted to cost more than that."""

SAMPLE = 256
"""Rows from which the mean squared norm is estimated: a pass over all would cost more than it tells."""

WORST = 1e100
"""The largest conditioning that is told from others: predictions stay finite, whatever the data."""

UNAIDED, NEEDED, FEW_SKETCHES = 25.0, 1.0 / 3.0, 2.0
"""Passes with a diagonal instead of a sketch, where that is enough, how often it is not, and how many sketches it takes then."""

TRIAL, LITTLE = 3.0, 0.15
"""Epochs of SDNA with which a run begins where they cost no more than this fraction of what a primal method is expected to: some
data are far kinder than any bound, and what the epochs have found is a better start than nothing."""

JUDGED = 3.0
"""Passes of the judge, and those before the first step."""

PASSES, SKETCHES, NEAR_PASSES = 8.0, 5.0, 4.0
"""Passes of Newton's method from nothing to a relative gap of 1e-6, sketches of the method that saves on them, and passes from
a model that was fitted to a problem like this."""

CHANGED, RESTLESS = 0.1, 1.2
"""Where the curvature of a row is some number or none: the part of the rows that change sides in a step of Newton's method, and
how many times as many sketches it takes a method that does not know which have any."""

BOUNDED = 6.0
"""Times as many epochs of a dual method where g has kinks or bounds: what was seen."""

INEXACT = 1.5
"""Times as many conjugate steps where each step of Newton's method begins them anew."""

MISSED = 0.25
"""Passes that gain a factor e, over the root of the curvature that a sketch of few rows leaves out: what was seen."""

JOINT_STEPS, COUPLED_PASSES, APART = 4.0, 20.0, 120.0
"""Of softmax: steps of Newton's method, and passes with the curvature of each class by itself. Both grow with the logarithm of
the conditioning; the passes by so much, where classes can be told apart since examples are no more than coefficients."""

WARY = 1.5
"""Times what is predicted for a sketch of fewer rows than features, which may know little of the others."""

TURNS = 8.0
"""Steps of Newton's method over working sets of features, where the losses are quadratic; others take twice as many."""

IN_USE = 0.25
"""The share of the features (of the examples, if those are fewer) that a penalty with a kink or bounds leaves in use: a guess."""

ROUNDS, COLUMN_SWEEPS = 3.0, 15.0
"""Factors of their matrix in a step; sweeps over them and back, where there are too many for a matrix."""
