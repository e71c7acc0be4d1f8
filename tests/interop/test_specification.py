"""One specification: estimators, the command line and files mean the same problem by the same words, and words come back."""

import json

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.cli._problems import objectives_of, problems_from
from dualnewton.errors import DualnewtonError
from dualnewton.interop import specification
from dualnewton.interop.labels import codes_of, tidy
from dualnewton.interop.model_file import SavedModel
from dualnewton.interop.names import LOSSES, PENALTIES
from dualnewton.interop.parts import AtScale
from dualnewton.interop.specification import Specification
from dualnewton.io.dataset import Dataset
from dualnewton.objective.unpenalised import Unpenalised
from interop_cases import CASES, NUMBERS, THREE, TWO, WEIGHTS, X


def same(a, b):
    """Whether two objectives are one: equal data, weights, λ, loss and regulariser."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Unpenalised):
        return same(a.unit, b.unit)
    if isinstance(a, AtScale):
        return same(a.problem, b.problem) and a.scale == b.scale
    arrays = np.array_equal(a.data.X, b.data.X)
    arrays = arrays and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("y", "sample_weight"))
    words = ("lam", "fit_intercept", "n_classes", "epsilon", "loss")
    plain = all(getattr(a, name, None) == getattr(b, name, None) for name in words)
    W = np.linspace(0.0, 0.09, 8).reshape(2, 4)
    g, h = getattr(a, "regularizer", None), getattr(b, "regularizer", None)
    return arrays and plain and type(g) is type(h) and (g is None or all(g.value(w) == h.value(w) for w in W))


@pytest.mark.parametrize("name", CASES)
def test_estimator_and_file_mean_the_same_problem(name, tmp_path):
    case = CASES[name]
    model = case.fitted()
    own = model._objectives(model._checked(X, case.y, case.weights))
    dn.save(model, tmp_path / "m")
    saved = SavedModel.load(tmp_path / "m")
    y = case.y if saved.classes is None else codes_of(tidy(case.y), saved.classes)
    of_file = saved.objective.objectives(X, y, saved.classes, sample_weight=case.weights, scale=saved.scale)
    assert len(own) == len(of_file)
    assert all(map(same, own, of_file))
    if case.y.ndim == 1:
        assert all(map(same, own, objectives_of(saved, Dataset(X, case.y, sample_weight=case.weights, name="here"))))


@pytest.mark.parametrize("name", CASES)
def test_words_come_back(name):
    words = CASES[name].fitted()._specification(60)
    assert Specification(**json.loads(json.dumps(words.to_dict()))) == words
    assert "\n" not in str(words)


@pytest.mark.parametrize(("model", "y", "options"), [
    (dn.LogisticRegression(C=0.3), TWO, {"C": 0.3}),
    (dn.LogisticRegression(C=0.3), THREE, {"C": 0.3}),
    (dn.LogisticRegression(C=0.3, multi_class="ovr"), THREE, {"C": 0.3, "multiclass": "ovr"}),
    (dn.LogisticRegression(C=0.3, l1_ratio=0.4), TWO, {"C": 0.3, "penalty": "elasticnet", "l1_ratio": 0.4}),
    (dn.LogisticRegression(C=0.3, l1_ratio=1.0), TWO, {"C": 0.3, "penalty": "l1"}),
    (dn.LinearSVC(C=0.5, fit_intercept=False), TWO, {"C": 1.0, "loss": "squared_hinge", "intercept": False}),
    (dn.LinearSVC(C=0.5, loss="hinge"), THREE, {"C": 0.5, "loss": "hinge"}),
    (dn.LinearSVR(C=0.5, epsilon=0.2), NUMBERS, {"C": 0.5, "loss": "epsilon_insensitive", "epsilon": 0.2}),
    (dn.Ridge(60.0 * 0.25), NUMBERS, {"lam": 0.25}),
    (dn.Ridge(60.0 * 0.25, positive=True), NUMBERS, {"lam": 0.25, "penalty": "nonnegative"}),
    (dn.ElasticNet(0.1, l1_ratio=0.3), NUMBERS, {"lam": 0.1, "penalty": "elasticnet", "l1_ratio": 0.3}),
    (dn.Lasso(0.1), NUMBERS, {"lam": 0.1, "penalty": "l1"}),
    (dn.ERMRegressor(losses.Huber(0.7), lam=0.1), NUMBERS, {"lam": 0.1, "loss": "huber", "delta": 0.7}),
])  # fmt: skip
def test_estimator_and_command_mean_the_same_problem(model, y, options):
    task = problems_from(Dataset(X, y, name="here"), **options)
    own = model._problems(model._checked(X, y, None))
    assert len(own) == len(task.problems)
    assert all(map(same, own, task.problems))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_has_one_name(name):
    assert Specification(LOSSES[name]()) == Specification(name)
    exported = {getattr(losses, each) for each in losses.__all__ if isinstance(getattr(losses, each), type)}
    assert {kind for kind in exported if "__dataclass_fields__" in vars(kind)} - {
        losses.Softmax,
        losses.SquaredOutputs,
    } == set(LOSSES.values())


def test_every_regulariser_has_a_name():
    public = [getattr(regularizers, each) for each in regularizers.__all__]
    kinds = {each for each in public if isinstance(each, type) and issubclass(each, regularizers.Regularizer)}
    assert kinds - {regularizers.Regularizer} <= set(PENALTIES.values())


def test_an_object_of_the_users_own_stays_and_cannot_be_written():
    class Own(losses.Logistic):
        pass

    words = Specification(Own(), 0.1)
    assert isinstance(words.problems(X, TWO, np.arange(2))[0].loss, Own)
    with pytest.raises(
        ValueError, match="loss must be one of the library's to be stored in a file, got an object of the class Own"
    ):
        words.to_dict()


def test_weights_and_classes_count_as_the_words_say():
    kinds = np.arange(3)
    (c,) = {
        tuple(p.c)
        for p in Specification("hinge", 1.0, weights="relative").problems(X, THREE, kinds, sample_weight=WEIGHTS)
    }
    np.testing.assert_allclose(c, WEIGHTS / WEIGHTS.mean(), rtol=1e-15)
    table = {0: 2.0, 1: 3.0, 2: 5.0}
    by_all = Specification("hinge", 1.0, class_weight=table).problems(X, THREE, kinds)
    by_own = Specification("hinge", 1.0, class_weight=table, class_weighting="own").problems(X, THREE, kinds)
    for k in range(3):
        np.testing.assert_array_equal(by_all[k].c, np.array([2.0, 3.0, 5.0])[THREE])
        np.testing.assert_array_equal(by_own[k].c, np.where(k == THREE, table[k], 1.0))
    total = Specification("hinge", weights="relative").problems(X, THREE, kinds, sample_weight=WEIGHTS)[0].lam
    assert total == 1.0 / WEIGHTS.sum()
    with pytest.raises(ValueError, match="penalties do not correspond: 2 != 1"):
        Specification("squared", [1.0, 2.0]).problems(X, NUMBERS)


@pytest.mark.parametrize("name", ["softmax, strings", "ridge, several", "huber", "svc", "logistic, unpenalised"])
def test_a_saved_model_can_be_certified_where_there_is_no_estimator(name, tmp_path):
    case = CASES[name]
    model = case.fitted()
    dn.save(model, tmp_path / "m")
    found, expected = (
        dn.certify(SavedModel.load(tmp_path / "m"), X, case.y, sample_weight=case.weights),
        dn.certify(model, X, case.y, sample_weight=case.weights),
    )
    assert found.primal == pytest.approx(expected.primal, rel=1e-12)
    assert found.gap <= max(2.0 * model.tol, 1e-6) * abs(found.primal)


def test_equal_words_are_settled_once_and_unequal_types_apart():
    words = {"fit_intercept": True, "penalty": "elasticnet", "penalty_parameters": {"l1_ratio": 0.25}}
    made = specification.specified("squared", 0.5, **words)
    assert specification.specified("squared", 0.5, **words) is made
    assert made == Specification("squared", 0.5, **words)
    assert made.regularizer is made.regularizer
    with pytest.raises(DualnewtonError, match="fit_intercept must be true or false, got 1"):
        specification.specified("squared", 0.5, **{**words, "fit_intercept": 1})
    several = specification.specified("squared", np.array([0.5, 1.0]), class_weight={0: 2.0}, targets="classes")
    assert several.lam == [0.5, 1.0]
    assert several.class_weight == [[0, 2.0]]
