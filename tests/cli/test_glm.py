"""Counts, costs and rates on the command line: losses with the log link, offsets and exposures."""

import numpy as np
import pytest

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
        "1e-10",
        "--no-standardise",
        "--out",
    ]
    by_exposure = command("fit", file, "--exposure", "years", "--drop", "logs", *settings, "one.model")
    by_offset = command("fit", file, "--offset", "logs", "--drop", "years", *settings, "other.model")
    assert (by_exposure.code, by_offset.code) == (0, 0), by_exposure.err + by_offset.err
    assert "D2" in by_exposure.out
    one, other = (SavedModel.load(f"{name}.model") for name in ("one", "other"))
    model = dn.PoissonRegressor(alpha=0.01, tol=1e-10).fit(X, counts, offset=np.log(years))
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
