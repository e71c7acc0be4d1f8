"""LogisticRegression against scikit-learn's, and what is its own."""

import warnings
from itertools import product

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as Theirs
from sklearn.multiclass import OneVsRestClassifier

import dualnewton as dn
from estimators.cases import as_csr, data_for, relative

EXACT = {"tol": 1e-12, "max_iter": 1000}


def theirs(**kwargs):
    """scikit-learn's most exact solver for what is asked."""
    solver = "saga" if kwargs.get("l1_ratio") else "newton-cholesky"
    return Theirs(solver=solver, tol=1e-13, max_iter=100_000, **kwargs)


def parameters(model):
    """Coefficients and intercepts in one array: an intercept that happens to be near zero has no scale of its own."""
    return np.column_stack([model.coef_, model.intercept_])


def quiet_fit(model, *args):
    """Their solvers warn where the line search can gain nothing more; so close to the optimum that is no concern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*args)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_parity(sparse, n_classes, fit_intercept, C):
    X, y = data_for(n_classes, n=80)
    weights = np.random.default_rng(1).uniform(0.1, 3.0, len(y))
    names = np.array(["ant", "bee", "cat"])[y]
    for class_weight, weight in product((None, "balanced", {"ant": 2.0, "bee": 0.5}), (None, weights)):
        asked = {"C": C, "fit_intercept": fit_intercept, "class_weight": class_weight}
        ours = dn.LogisticRegression(**asked, **EXACT).fit(as_csr(X) if sparse else X, names, weight)
        reference = quiet_fit(theirs(**asked), X, names, weight)
        assert relative(parameters(ours), parameters(reference)) < 1e-6
        assert np.abs(ours.predict_proba(X) - reference.predict_proba(X)).max() < 1e-6
        assert (ours.predict(X) == reference.predict(X)).all()
        assert ours.coef_.shape == reference.coef_.shape
        assert ours.intercept_.shape == reference.intercept_.shape


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_parity_without_a_penalty(n_classes, fit_intercept):
    X, y = data_for(n_classes, n=200, d=4)
    X = X * [1.0, 1e3, 1e-3, 1.0]
    ours = dn.LogisticRegression(C=np.inf, fit_intercept=fit_intercept, **EXACT).fit(X, y)
    reference = quiet_fit(theirs(C=np.inf, fit_intercept=fit_intercept), X, y)
    assert relative(ours.coef_ / [1.0, 1e-3, 1e3, 1.0], reference.coef_ / [1.0, 1e-3, 1e3, 1.0]) < 1e-6
    assert np.abs(ours.predict_proba(X) - reference.predict_proba(X)).max() < 1e-6
    old_name = dn.LogisticRegression(None, fit_intercept=fit_intercept, **EXACT).fit(X, y)
    assert (old_name.coef_ == ours.coef_).all()


@pytest.mark.parametrize("l1_ratio", [0.3, 1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_parity_with_l1(l1_ratio, fit_intercept, n_classes, sparse):
    X, y = data_for(n_classes, n=80)
    asked = {"C": 0.1, "l1_ratio": l1_ratio, "fit_intercept": fit_intercept, "class_weight": "balanced"}
    ours = dn.LogisticRegression(**asked, **EXACT).fit(as_csr(X) if sparse else X, y)
    reference = quiet_fit(theirs(**asked), X, y)
    # Neither of them moves the coefficients of softmax to a mean of zero, which the penalty would notice.
    assert relative(parameters(ours), parameters(reference)) < 1e-6
    assert ((ours.coef_ == 0.0) == (reference.coef_ == 0.0)).all()
    assert np.abs(ours.predict_proba(X) - reference.predict_proba(X)).max() < 1e-6
    assert abs(ours.intercept_.sum()) < 1e-12 or n_classes == 2


def test_one_against_the_rest_is_a_fit_for_each_class():
    X, y = data_for(3)
    ours = dn.LogisticRegression(multi_class="ovr", **EXACT).fit(X, y)
    reference = OneVsRestClassifier(theirs()).fit(X, y)
    assert relative(ours.coef_, np.vstack([one.coef_ for one in reference.estimators_])) < 1e-6
    assert np.abs(ours.predict_proba(X) - reference.predict_proba(X)).max() < 1e-6
    assert np.abs(ours.predict_log_proba(X) - np.log(reference.predict_proba(X))).max() < 1e-5
    assert len(ours.certificate_) == 3
    assert ours.dual_coef_.shape == (len(y), 3)


def test_softmax_coefficients_sum_to_zero_over_the_classes():
    X, y = data_for(3)
    for C in (1.0, np.inf):
        model = dn.LogisticRegression(C=C).fit(X, y)
        assert np.abs(model.coef_.sum(axis=0)).max() < 1e-12 * np.abs(model.coef_).max()
        assert abs(model.intercept_.sum()) < 1e-12


@pytest.mark.parametrize("n_classes", [2, 3])
def test_names_of_penalties_mean_what_they_meant(n_classes):
    X, y = data_for(n_classes)
    for old, new in (
        ({"penalty": "l2"}, {}),
        ({"penalty": "l1"}, {"l1_ratio": 1.0}),
        ({"penalty": "elasticnet", "l1_ratio": 0.4}, {"l1_ratio": 0.4}),
        ({"l1_ratio": None}, {}),
    ):
        old_fit, new_fit = (dn.LogisticRegression(C=0.3, **asked).fit(X, y) for asked in (old, new))
        assert (old_fit.coef_ == new_fit.coef_).all()


def test_contradicting_penalties_are_named():
    X, y = data_for(2)
    with pytest.warns(
        UserWarning, match=r"only used when penalty is 'elasticnet'\. Got \(penalty=l2\) with l1_ratio=0\.3"
    ):
        dn.LogisticRegression("l2", l1_ratio=0.3).fit(X, y)
    with pytest.warns(UserWarning, match="Setting penalty=None will ignore the C parameter, got C=3"):
        dn.LogisticRegression(None, C=3.0).fit(X, y)
    with pytest.raises(ValueError, match="l1_ratio must be a number"):
        dn.LogisticRegression("elasticnet", l1_ratio=None).fit(X, y)


@pytest.mark.parametrize("solver", ["lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga"])
def test_their_solvers_all_mean_auto(solver):
    X, y = data_for(2)
    assert (
        dn.LogisticRegression(solver=solver).fit(X, y).coef_ == dn.LogisticRegression(solver="auto").fit(X, y).coef_
    ).all()


@pytest.mark.parametrize("solver", ["newton", "ihs"])
def test_our_solvers_choose_for_softmax(solver):
    X, y = data_for(3)
    model = dn.LogisticRegression(solver=solver, max_iter=1000).fit(X, y)
    assert model.plan_.method == solver
    assert model.certificate_.relative_gap <= 1e-4


@pytest.mark.parametrize("solver", ["sdna", "sdca", "newton", "ihs"])
def test_our_solvers_choose(solver):
    X, y = data_for(2)
    model = dn.LogisticRegression(solver=solver, max_iter=1000).fit(X, y)
    assert model.plan_.method == solver
    assert model.certificate_.relative_gap <= 1e-4


def test_refusals_teach():
    X, y = data_for(3)
    with pytest.raises(ValueError, match=r"'solver' parameter .* must be a str among .*'sdna'.*'sgd'"):
        dn.LogisticRegression(solver="sgd").fit(X, y)
    with pytest.raises(ValueError, match=r"solver must be one of 'auto', 'newton', 'ihs' for 3 .* multi_class=.ovr."):
        dn.LogisticRegression(solver="sdca").fit(X, y)
    with pytest.raises(ValueError, match=r"solver must be one of 'auto', 'newton' for 3 .* l1_ratio > 0, got 'sdna'"):
        dn.LogisticRegression(l1_ratio=0.5, solver="sdna").fit(X, y)
    with pytest.raises(ValueError, match="only one class"):
        dn.LogisticRegression().fit(X, np.zeros(len(y)))
    with pytest.raises(ValueError, match=r"'C' parameter .* in the range \(0\.0, inf\]"):
        dn.LogisticRegression(C=0.0).fit(X, y)


def test_separable_classes_without_a_penalty_have_no_optimum_and_the_warning_says_how_far_it_got():
    X, y = np.array([[-1.0], [1.0], [2.0]]), [0, 1, 1]
    with pytest.warns(ConvergenceWarning, match="certified relative gap of 1.00e"):
        model = dn.LogisticRegression(C=np.inf).fit(X, y)
    assert (model.predict(X) == y).all()


def test_tiny_probabilities_keep_their_digits():
    X, y = np.array([[-1.0], [1.0]]), [0, 1]
    model = dn.LogisticRegression().fit(X, y)
    log = model.predict_log_proba([[1e4]])
    assert log[0, 0] == pytest.approx(-1e4 * model.coef_[0, 0] - model.intercept_[0])
    assert model.predict_proba([[1e4]])[0, 0] == 0.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_certificate_is_that_of_the_problem(n_classes):
    X, y = data_for(n_classes)
    model = dn.LogisticRegression(C=0.4).fit(X, y)
    n = len(y)
    if n_classes == 2:
        problem = dn.Problem(X, 2.0 * y - 1.0, dn.losses.Logistic(), lam=1.0 / (0.4 * n), fit_intercept=True)
        certified = problem.certify(model.coef_[0], model.intercept_[0], model.dual_coef_)
    else:
        problem = dn.MultinomialProblem(X, y, lam=1.0 / (0.4 * n), fit_intercept=True)
        certified = problem.certify(model.coef_, model.intercept_, model.dual_coef_)
    assert certified.primal <= model.certificate_.primal * (
        1.0 + 1e-14
    )  # centred over classes, it has become a little better
    assert certified.primal == pytest.approx(model.certificate_.primal, rel=1e-6)
    assert certified.dual >= model.certificate_.dual * (1.0 - 1e-14)


def test_a_class_whose_examples_weigh_nothing_is_never_predicted():
    X, y = data_for(3)
    model = dn.LogisticRegression().fit(X, y, sample_weight=(y < 2) * 1.0)
    assert list(model.classes_) == [0, 1, 2]
    assert model.predict_proba(X)[:, 2].max() < 1e-12


def test_steps_that_rounding_has_made_useless_end():
    """The gap of this model stays at 4e-16: certificates every ten steps show that no smaller one is found."""
    shape = {"n_samples": 30, "n_features": 3, "n_informative": 3, "n_redundant": 0, "n_classes": 3}
    X, y = make_classification(**shape, random_state=42)
    model = dn.LogisticRegression(C=1e-4, fit_intercept=False, class_weight="balanced", tol=1e-18, max_iter=10**5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap may be zero, or not
        model.fit(X, y)
    assert model.certificate_.relative_bound < 1e-13
    assert model.n_iter_ < 1000
