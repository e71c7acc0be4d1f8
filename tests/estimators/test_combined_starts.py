"""Models of a grid start at the lowest combination of known models; that saves passes where classes are nearly separable."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses
from dualnewton.estimators.model_selection._combinations import lowest, with_margins
from dualnewton.matrix.memory import as_data
from dualnewton.objective.alike import like
from dualnewton.planning.direct import has_hessian_of_each_fold
from dualnewton.planning.tuning import DEFAULT

N, D = 400, 150
RNG = np.random.default_rng(0)
X = sp.random_array((N, D), density=0.1, rng=RNG, format="csr")
Z = X @ RNG.standard_normal((D, 3)) + 0.05 * RNG.standard_normal((N, 3))
KINDS = [(losses.Logistic(), np.where(Z[:, 0] > 0.0, 1.0, -1.0)), (losses.Softmax(3), Z.argmax(axis=1))]


@pytest.mark.parametrize(("loss", "y"), KINDS, ids=["two classes", "three"])
def test_a_combination_is_lower_than_every_model_and_than_all_others(loss, y):
    weights = np.where(np.arange(N) % 5 == 0, 0.0, 1.0)
    problem = dn.Problem(X, y, loss, lam=1e-4, sample_weight=weights, fit_intercept=True)
    models = [dn.solve(like(problem, lam=lam), tol=1e-8) for lam in (1e-2, 1e-3)]
    models.append(dn.solve(dn.Problem(X, y, loss, lam=1e-4, fit_intercept=True), tol=1e-8))
    known, first = with_margins(problem.data, models), np.array([-1.0, 2.0, 0.0])
    for each in known:
        own = problem.data.times(np.atleast_2d(each.model.w).T) + each.model.intercept
        np.testing.assert_allclose(each.margins, own[:, 0] if problem.columns == 1 else own, atol=1e-12)

    def value(t):
        w, b = (
            sum(part * getattr(each, name) for part, each in zip(t, models, strict=True)) for name in ("w", "intercept")
        )
        return problem.certify(w, b).primal

    found = lowest(problem, known, first, 1e-8)
    least = problem.certify(found.w, found.intercept).primal
    assert least <= min(map(value, [*np.eye(3), first]))
    span = np.stack([np.append(np.ravel(each.w), each.intercept) for each in models])
    t = np.linalg.lstsq(span.T, np.append(np.ravel(found.w), found.intercept))[0]
    assert math.isclose(value(t), least, rel_tol=1e-10)
    assert all(least <= value(t + 0.02 * step) for step in np.vstack([np.eye(3), -np.eye(3)]))


@pytest.mark.parametrize("classes", [2, 3])
def test_combinations_save_products_for_the_folds_of_weak_penalties(classes, monkeypatch):
    rng = np.random.default_rng(1)
    wide = sp.random_array((1500, 1200), density=20 / 1200, rng=rng, format="csr")
    y = (wide @ rng.standard_normal((1200, classes))).argmax(axis=1)
    passes = []
    for least in (10.0, math.inf):
        monkeypatch.setattr(dn.LogisticRegressionCV, "_tuning", replace(DEFAULT, combined_passes=least))
        model = dn.LogisticRegressionCV(Cs=8, use_legacy_attributes=False, scoring="accuracy").fit(wide, y)
        assert max(each.relative_gap for each in model.certificates_.ravel()) <= 1e-4
        passes.append(model.n_iter_.sum())
    assert passes[0] < 0.85 * passes[1]


def test_classes_share_a_hessian_where_a_joint_one_costs_many_passes():
    """Ten classes of 60 features had a joint Hessian, with which a search took 1.5 times as long."""
    assert has_hessian_of_each_fold(as_data(np.zeros((600, 60))), 5, classes=3)
    assert not has_hessian_of_each_fold(as_data(np.zeros((3000, 60))), 5, classes=10)
    assert has_hessian_of_each_fold(as_data(np.zeros((2000, 40))), 5, classes=5)
