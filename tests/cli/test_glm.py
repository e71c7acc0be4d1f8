"""Counts, costs and rates on the command line: losses with the log link, offsets and exposures."""

import json

import numpy as np
import pytest
from sklearn.model_selection import KFold

import dualnewton as dn
from cli.running import refused
from dualnewton.interop.model_file import SavedModel


@pytest.fixture
def claims(tmp_path):
    rng = np.random.default_rng(0)
    X, years = rng.standard_normal((80, 2)), rng.uniform(0.1, 2.0, 80)
    counts = rng.poisson(years * np.exp(0.5 * X[:, 0]))
    table = np.column_stack([X, years, np.log(years), counts])
    np.savetxt(tmp_path / "claims.csv", table, delimiter=",", header="a,b,years,logs,claims", comments="", fmt="%.17g")
    return tmp_path / "claims.csv", X, years, counts


def test_exposures_are_offsets_by_their_logarithm(command, claims):
    file, X, years, counts = claims
    settings = [
        "--target",
        "claims",
        "--loss",
        "poisson",
        "--lam",
        "0.01",
        "--tol",
        "1e-12",
        "--no-standardise",
        "--out",
    ]
    by_exposure = command("fit", file, "--exposure", "years", "--drop", "logs", *settings, "one.model")
    by_offset = command("fit", file, "--offset", "logs", "--drop", "years", *settings, "other.model")
    assert (by_exposure.code, by_offset.code) == (0, 0), by_exposure.err + by_offset.err
    assert "D2" in by_exposure.out
    one, other = (SavedModel.load(f"{name}.model") for name in ("one", "other"))
    model = dn.PoissonRegressor(alpha=0.01, tol=1e-12).fit(X, counts, offset=np.log(years))
    for saved in (one, other):
        np.testing.assert_allclose(saved.coef[0], model.coef_, rtol=1e-5)
        np.testing.assert_allclose(saved.predict(X), model.predict(X), rtol=1e-5)  # at offset zero: per year
        assert saved.score(X, counts, offset=np.log(years)) == pytest.approx(
            model.score(X, counts, offset=np.log(years))
        )


def test_what_does_not_fit_together_is_refused(command, claims):
    file = claims[0]
    both = refused(
        command("fit", file, "--target", "claims", "--loss", "poisson", "--exposure", "years", "--offset", "logs")
    )
    assert "--offset and --exposure" in both
    negative = refused(command("fit", file, "--target", "claims", "--loss", "poisson", "--exposure", "logs"))
    assert "--exposure must name a column of numbers > 0" in negative
    assert "y must hold" in refused(command("fit", file, "--target", "a", "--loss", "gamma"))


SETTINGS = ("--target", "claims", "--loss", "poisson", "--lam", "0.01", "--tol", "1e-10")


def without(file, column):
    """The same table without a column."""
    rows = [line.split(",") for line in file.read_text().splitlines()]
    at = rows[0].index(column)
    other = file.with_name("without.csv")
    other.write_text("\n".join(",".join(row[:at] + row[at + 1 :]) for row in rows) + "\n")
    return other


def test_the_exposure_of_the_fit_enters_all_that_uses_the_model(command, claims):
    file, X, years, counts = claims
    fitted = command(
        "fit", file, "--exposure", "years", "--drop", "logs", *SETTINGS, "--test", file, "--out", "m.model"
    )
    assert fitted.code == 0, fitted.err
    model = dn.PoissonRegressor(alpha=0.01, tol=1e-10).fit((X - X.mean(0)) / X.std(0), counts, offset=np.log(years))
    rows, o = (X - X.mean(0)) / X.std(0), np.log(years)
    d2 = f"D2 {model.score(rows, counts, offset=o):.4f}"
    assert f"train        {d2}\ntest         {d2}" in fitted.out
    assert "offset       the logarithm of years" in fitted.out

    assert json.loads(command("certify", "m.model", file, "--json").out)["relative_gap"] < 1e-9
    scores = json.loads(command("evaluate", "m.model", file, "--json").out)
    errors = model.predict(rows, offset=o) - counts
    assert scores["d2"] == pytest.approx(model.score(rows, counts, offset=o), abs=1e-6)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-5)
    predicted = command("predict", "m.model", file).out.splitlines()[1:]
    np.testing.assert_allclose(np.array(predicted, dtype=float), model.predict(rows, offset=o), rtol=1e-5)

    alone = command("predict", "m.model", without(file, "years"))
    assert "no column 'years': the predictions are for exposures of 1" in alone.err
    np.testing.assert_allclose(np.array(alone.out.splitlines()[1:], dtype=float), model.predict(rows), rtol=1e-5)
    assert "offset='years'" in refused(command("evaluate", "m.model", without(file, "years")))
    other = command("predict", "m.model", without(file, "years"), "--offset", "logs")
    np.testing.assert_allclose(
        np.array(other.out.splitlines()[1:], dtype=float), model.predict(rows, offset=o), rtol=1e-5
    )


def test_offsets_enter_the_margins_of_classes(command, tmp_path):
    rng = np.random.default_rng(1)
    X, o = rng.standard_normal((60, 2)), rng.standard_normal(60)
    y = (X[:, 0] + o + rng.standard_normal(60) > 0).astype(int)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    np.save(tmp_path / "o.npy", o)
    fitted = command("fit", "rows.npz", "--offset", "o.npy", "--tol", "1e-10", "--out", "m.model")
    assert fitted.code == 0, fitted.err
    model = SavedModel.load("m.model")
    z = X @ model.coef[0] + model.intercept[0] + o
    probabilities = np.array(
        [line.split(",") for line in command("predict", "m.model", "rows.npz", "--proba").out.split()]
    )
    np.testing.assert_allclose(probabilities[1:, 1].astype(float), 1.0 / (1.0 + np.exp(-z)))
    assert json.loads(command("certify", "m.model", "rows.npz", "--json").out)["relative_gap"] < 1e-9
    right = json.loads(command("evaluate", "m.model", "rows.npz", "--json").out)
    assert right["accuracy"] == pytest.approx(np.mean((z > 0) == y))


def test_cross_validation_with_exposures_chooses_as_the_estimator_does(command, claims):
    file, X, years, counts = claims
    words = (
        "--target",
        "claims",
        "--loss",
        "poisson",
        "--exposure",
        "years",
        "--drop",
        "logs",
        "--cv",
        "3",
        "--out",
        "m.model",
    )
    chosen = command("fit", file, *words)
    assert chosen.code == 0, chosen.err
    assert "Not proved: exact fits might choose another value (deviances have no bounded slope" in chosen.out
    folds = KFold(3, shuffle=True, random_state=0)
    search = dn.PoissonRegressorCV(cv=folds).fit((X - X.mean(0)) / X.std(0), counts, offset=np.log(years))
    assert SavedModel.load("m.model").objective.lam == pytest.approx(search.alpha_)


def test_two_sets_for_one_score_are_refused(command, claims):
    file = claims[0]
    assert "--test and --test-size" in refused(
        command("fit", file, "--target", "claims", "--test", file, "--test-size", "0.5")
    )
