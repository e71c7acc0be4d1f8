"""dn.save and dn.load: an estimator comes back as it was, whoever reads the file; what cannot is refused by name."""

import json
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses
from dualnewton.files.archive import BadFileError
from dualnewton.interop.model_file import VERSION, SavedModel
from interop_cases import CASES, NUMBERS, TWO, X

every = pytest.mark.parametrize("name", CASES)


def equal(a, b):
    """Whether two values are equal with their types, arrays bit for bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        same_kind = a.shape == b.shape and (a.dtype == b.dtype or a.dtype.kind == b.dtype.kind == "U")
        return same_kind and all(equal(x, y) for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, losses.Loss | dn.regularizers.Regularizer):
        return all(equal(getattr(a, key), getattr(b, key)) for key in a.__dataclass_fields__)
    return bool(a == b) or (a != a and b != b) or str(a) == str(b)


@every
def test_an_estimator_comes_back_as_it_was(name, tmp_path):
    case = CASES[name]
    model = case.fitted()
    dn.save(model, tmp_path / "m")
    found = dn.load(tmp_path / "m")
    assert type(found) is type(model)
    assert equal(found.get_params(), model.get_params())
    public = [key for key in vars(model) if key.endswith("_") and not key.startswith("_")]
    assert {"coef_", "intercept_", "certificate_", "dual_coef_", "trace_", "plan_", "n_features_in_"} <= set(public)
    for key in public:
        assert equal(getattr(found, key), getattr(model, key)), key
    for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(model, method):
            np.testing.assert_array_equal(getattr(found, method)(X), getattr(model, method)(X))
    assert dn.certify(found, X, case.y, sample_weight=case.weights) == dn.certify(
        model, X, case.y, sample_weight=case.weights
    )


@every
def test_a_file_can_be_used_without_the_estimator(name, tmp_path):
    case = CASES[name]
    model = case.fitted()
    dn.save(model, tmp_path / "m")
    saved = SavedModel.load(tmp_path / "m")
    predicted, expected = saved.predict(X), model.predict(X)
    if saved.classes is None:
        np.testing.assert_allclose(predicted, expected, rtol=1e-12, atol=1e-12)
        assert saved.score(X, case.y) == pytest.approx(model.score(X, case.y), rel=1e-12)
    else:
        assert list(map(str, predicted)) == [
            str(int(e)) if isinstance(e, bool | float) else str(e) for e in expected.tolist()
        ]
    if saved.objective.has_probabilities:
        np.testing.assert_allclose(saved.predict_proba(X), model.predict_proba(X), atol=1e-12)
    own = model.certificate_ if isinstance(model.certificate_, list) else [model.certificate_]
    assert list(saved.certificates) == own


def test_a_copy_is_independent_of_precision_and_storage(tmp_path):
    model = dn.LogisticRegression().fit(X.astype(np.float32), TWO)
    dn.save(model.sparsify(), tmp_path / "m")
    found = dn.load(tmp_path / "m")
    assert found.coef_.dtype == np.float32
    np.testing.assert_array_equal(found.coef_, model.coef_.toarray())
    np.testing.assert_array_equal(found.predict(sp.csr_array(X)), model.predict(X))


def test_names_of_features_come_along(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    dn.save(dn.Ridge().fit(frame, NUMBERS), tmp_path / "m")
    assert SavedModel.load(tmp_path / "m").feature_names == ("a", "b", "c", "d")
    assert dn.load(tmp_path / "m").feature_names_in_.tolist() == ["a", "b", "c", "d"]


def test_a_loaded_estimator_can_be_fitted_again(tmp_path):
    model = dn.LogisticRegression(warm_start=True).fit(X, TWO)
    dn.save(model, tmp_path / "m")
    np.testing.assert_allclose(dn.load(tmp_path / "m").fit(X, TWO).coef_, model.coef_, rtol=1e-4)


def test_a_saved_model_is_saved_as_it_is(tmp_path):
    dn.save(dn.Ridge().fit(X, NUMBERS), tmp_path / "m")
    dn.save(SavedModel.load(tmp_path / "m"), tmp_path / "again")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "again").read_bytes()


# What cannot be saved -------------------------------------------------------------------------------------------------


class Own(losses.Logistic):
    """A loss of the user's own."""


@pytest.mark.parametrize(("make", "message"), [
    (lambda: dn.Ridge(callback=lambda _: False).fit(X, NUMBERS), "callback of Ridge cannot be written to a file"),
    (lambda: dn.Ridge(random_state=np.random.default_rng(0)).fit(X, NUMBERS), "random_state of Ridge cannot be written"),
    (lambda: dn.ERMClassifier(Own()).fit(X, TWO), "loss"),
    (lambda: dn.RidgeClassifier().fit(X, np.stack([TWO, 1 - TWO], axis=1)), "several labels per row"),
    (lambda: dn.Ridge(), "not fitted yet"),
    (lambda: object(), "model must be a fitted estimator of dualnewton or a SavedModel, got object"),
])  # fmt: skip
def test_what_cannot_be_saved_is_refused_by_name(make, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        dn.save(make(), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


# Bad files ------------------------------------------------------------------------------------------------------------


def changed(path, change):
    """Rewrite the header of a file, with right checksums."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    header = json.loads(members["header.json"])
    change(header)
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in (members | {"header.json": json.dumps(header).encode()}).items():
            archive.writestr(zipfile.ZipInfo(name), raw)


def wrong(*keys, value):
    def change(header):
        for key in keys[:-1]:
            header = header[key]
        header[keys[-1]] = value

    return change


OF = ("content", "estimator")


@pytest.mark.parametrize(("change", "message"), [
    (wrong("version", value=VERSION + 1), f"of version {VERSION + 1}, this library reads versions up to {VERSION}"),
    (wrong("content", "objective", "loss", value="squred"), "loss must be one of .* did you mean squared"),
    (wrong("content", "objective", "penalty", value="l3"), "penalty must be one of l2"),
    (wrong(*OF, "class", value="Pipeline"), "class must be one of ERMClassifier, .*, got 'Pipeline'"),
    (wrong(*OF, "class", value=7), "class must be text"),
    (wrong(*OF, "parameters", value={"alhpa": 1.0}), "unexpected keyword argument 'alhpa'"),
    (wrong(*OF, "parameters", "alpha", value=-1.0), "'alpha' parameter"),
    (wrong(*OF, "parameters", "alpha", value={"code": "1"}), "a value must be of one of the kinds"),
    (wrong(*OF, "fitted", "predict", value=1), "attributes that end in _"),
    (wrong(*OF, "fitted", "coef_", value=[3.0]), "coef_ of the estimator must be the coefficients of the model"),
    (wrong(*OF, "fitted", "n_features_in_", value=3), "n_features_in_ must be the 4 columns of coef_, got 3"),
    (lambda header: header["content"]["estimator"]["fitted"].pop("n_features_in_"), "must hold .*, n_features_in_"),
    (wrong(*OF, "fitted", "dual_coef_", value={"array": "nowhere"}), "a value of the kind array is wrong"),
    (wrong("content", "scale", value=1.0), "scale must be there exactly where"),
])  # fmt: skip
def test_a_bad_file_is_refused_in_a_line(change, message, tmp_path):
    dn.save(dn.Ridge().fit(X, NUMBERS), tmp_path / "m")
    changed(tmp_path / "m", change)
    with pytest.raises(BadFileError, match=message) as refused:
        dn.load(tmp_path / "m")
    assert "\n" not in str(refused.value)


def test_a_file_that_was_cut_short_is_refused(tmp_path):
    dn.save(dn.Ridge().fit(X, NUMBERS), tmp_path / "m")
    raw = (tmp_path / "m").read_bytes()
    for part in (0.1, 0.5, 0.99):
        (tmp_path / "m").write_bytes(raw[: int(part * len(raw))])
        with pytest.raises(BadFileError, match="is not a dualnewton model, or was cut short"):
            dn.load(tmp_path / "m")
