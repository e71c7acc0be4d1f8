"""What every exported loss, regulariser and sampling promises: a new one is tested the moment it is exported."""

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses, regularizers, samplings
from tables import (
    JOINT,
    LOSSES,
    NON_SMOOTH,
    SEVERAL_COLUMNS,
    WITH_KINKS,
    WITHOUT_GAMMA,
    exported,
    labels_for,
    make_problem,
    name_of,
    regularizers_for,
    samplings_for,
)

EVERY_LOSS = [*LOSSES, *NON_SMOOTH, *SEVERAL_COLUMNS, *WITHOUT_GAMMA]
EVERY_REGULARIZER = [*regularizers_for(4), *WITH_KINKS, *JOINT]
by_loss = pytest.mark.parametrize("loss", EVERY_LOSS, ids=name_of)
by_regularizer = pytest.mark.parametrize("regularizer", EVERY_REGULARIZER, ids=name_of)


def test_every_exported_class_has_an_instance_here():
    for module, base, instances in (
        (losses, losses.Loss, EVERY_LOSS),
        (regularizers, regularizers.Regularizer, EVERY_REGULARIZER),
        (samplings, samplings.Sampling, samplings_for(5)),
    ):
        assert {type(instance) for instance in instances} >= set(exported(module, base))


@by_loss
def test_a_loss_is_what_it_declares(loss):
    losses.check(loss)
    assert loss.kinked == bool(loss.kinks(np.ones(1)))
    assert loss.has_dual_rounds == (loss.columns == 1 and not loss.kinked)
    assert not (loss.kinked and loss.gamma is not None)
    assert isinstance(loss.curvature, losses.Curvature)


@by_regularizer
def test_a_regularizer_is_what_it_declares(regularizer):
    regularizers.check(regularizer, 4)
    rng = np.random.default_rng(0)
    far = [regularizer.conjugate(100.0 * rng.standard_normal(4)) for _ in range(10)]
    assert np.isfinite(far).all() == regularizer.strongly_convex


@pytest.mark.parametrize("form", [{}, {"weights": True, "offset": True, "fit_intercept": True}], ids=str)
@by_loss
def test_every_loss_is_fitted_with_a_certificate(loss, form):
    problem = make_problem(loss, n=60, d=4, lam=0.05, **form)
    result = dn.solve(problem, tol=1e-8, random_state=0)
    assert result.certificate.relative_gap <= 1e-8
    shape = () if loss.columns == 1 else (loss.columns,)
    assert (result.w.shape, np.shape(result.intercept), result.alpha.shape) == ((*shape, 4), shape, (60, *shape))
    again = problem.certify(result.w, result.intercept, result.alpha)
    assert again.primal == pytest.approx(result.certificate.primal, rel=1e-12)
    assert again.relative_gap <= 1.1e-8
    # No other point is better than the certificate allows.
    rng = np.random.default_rng(1)
    for _ in range(5):
        other = result.w + 1e-3 * rng.standard_normal(result.w.shape)
        assert problem.primal(other, problem.best_intercept(other)) >= result.certificate.dual


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Hinge(), losses.Softmax(3)], ids=name_of)
@by_regularizer
def test_every_regularizer_is_fitted_with_a_certificate_or_refused_in_words(regularizer, loss):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 4)), labels_for(loss, 60, rng)
    if loss.columns > 1 and regularizer.form.is_general:
        with pytest.raises(ValueError, match="regularizer must be a sum over features"):
            dn.Problem(X, y, loss, regularizer=regularizer)
        return
    if loss.columns > 1 and regularizer.form.joint:
        with pytest.raises(ValueError, match="must not join the columns"):
            dn.solve(dn.Problem(X, y, loss, regularizer=regularizer))
        return
    result = dn.solve(
        dn.Problem(X, y, loss, regularizer=regularizer, lam=0.05, fit_intercept=True), tol=1e-6, random_state=0
    )
    assert result.certificate.relative_gap <= 1e-6


@pytest.mark.parametrize("sampling", samplings_for(5), ids=name_of)
def test_every_sampling_serves_a_fit(sampling):
    problem = make_problem(losses.Logistic(), n=5)
    assert dn.solve(problem, sampling=sampling, tol=1e-8, random_state=0).converged
