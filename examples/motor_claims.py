"""
Claims of motor insurance, with a proof
=======================================

Frequency, severity and pure premium of motor third-party liability claims, on generated data of the shape of the French data set
that scikit-learn's gallery fits. Usage: motor_claims.py [--rows 678013]
"""

import argparse

import numpy as np

import dualnewton as dn
from dualnewton.io.generated import motor


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000, help="policies; the French data have 678013")
    rows = parser.parse_args().rows
    data = motor(rows)
    exposure, frequency = data.sample_weight, data.y
    counts = np.round(frequency * exposure)
    print(f"{rows} policies, {data.X.shape[1]} columns, {int(counts.sum())} claims in {exposure.sum():.0f} years.")

    # 1. Frequency: counts with the logarithm of the exposure as offset, or rates with the exposure as weight, are one model.
    by_offset = dn.PoissonRegressor(alpha=1e-3 * exposure.mean(), tol=1e-8).fit(data.X, counts, offset=np.log(exposure))
    by_weight = dn.PoissonRegressor(alpha=1e-3, tol=1e-8).fit(data.X, frequency, exposure)
    print(f"Frequency: {by_offset.certificate_}")
    print(f"The two models differ by at most {np.abs(by_offset.coef_ - by_weight.coef_).max():.1e}.")
    print(f"Share of the deviance explained: {by_weight.score(data.X, frequency, exposure):.4f}.")

    # 2. Severity: the mean cost of a claim, on policies with a claim, weighted by the number of claims.
    rng = np.random.default_rng(1)
    claimed = counts > 0.0
    cost = rng.gamma(2.0, 500.0 * np.exp(0.3 * rng.standard_normal(rows)))
    severity = dn.GammaRegressor(alpha=1e-2, tol=1e-8).fit(data.X[claimed], cost[claimed], counts[claimed])
    print(f"Severity:  {severity.certificate_}")

    # 3. Pure premium: the total cost per year, most of which are zero, in one model.
    premium = np.where(claimed, cost * frequency, 0.0)
    whole = dn.TweedieRegressor(power=1.9, alpha=1e-2, tol=1e-8).fit(data.X, premium, exposure)
    print(f"Premium:   {whole.certificate_}")
    predicted = exposure @ by_weight.predict(data.X), exposure @ whole.predict(data.X)
    print(f"Claims: {counts.sum():.0f} seen, {predicted[0]:.0f} predicted.")
    print(f"Cost: {exposure @ premium:.4g} seen, {predicted[1]:.4g} predicted.")


if __name__ == "__main__":
    main()
