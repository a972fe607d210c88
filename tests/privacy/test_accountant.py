"""Epsilon against the formula computed by hand, and what the site stores."""

import math

import pytest
from scipy.stats import norm

from fclseg.privacy.accountant import epsilon

pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")
DELTA = 1e-5


def renyi(multiplier, rounds, delta):
    """Mironov's Gaussian mechanism, alpha / (2 z^2) per round, and the conversion of Canonne et al., for all alpha."""
    best = math.inf
    for alpha in [1 + step / 100 for step in range(1, 20000)]:
        divergence = rounds * alpha / (2 * multiplier**2)
        bound = divergence + math.log1p(-1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)
        best = min(best, bound)
    return best


def exact(multiplier, delta):
    """Balle and Wang (2018), Theorem 8, solved by bisection."""
    low, high = 0.0, 1000.0
    for _ in range(200):
        middle = (low + high) / 2
        first = norm.cdf(0.5 / multiplier - middle * multiplier)
        second = norm.logcdf(-0.5 / multiplier - middle * multiplier)
        low, high = (middle, high) if first - math.exp(middle + second) > delta else (low, middle)
    return high


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 2.0, 5.0])
def test_one_round_by_hand(multiplier):
    found = epsilon([multiplier], DELTA)
    assert found == pytest.approx(renyi(multiplier, 1, DELTA), rel=5e-3)
    assert exact(multiplier, DELTA) < found < 1.15 * exact(multiplier, DELTA)


ROUNDS = 40  # of `small`
UPDATES, PROTOTYPES = 8 / 2, 1 / 0.4
"""Multipliers of the settings that docs/privacy.md recommends where a bound is needed: `sigma` 8, and one prototype per
partition of ten patients with `feature_noise` 1 (a patient moves each of four means by 2 / 10, together by 0.4)."""


@pytest.mark.parametrize(
    ("multipliers", "one", "whole"),
    [([UPDATES], 1.0, 8.1), ([PROTOTYPES], 1.7, 14.3), ([UPDATES, PROTOTYPES], 2.0, 17.7)],
)
def test_a_whole_run_at_the_recommended_settings(multipliers, one, whole):
    """The figures of docs/privacy.md, and Renyi's formula by hand: noise of several kinds adds as inverse squares."""
    together = sum(1 / multiplier**2 for multiplier in multipliers) ** -0.5
    for rounds, shown in ((1, one), (ROUNDS, whole)):
        found = epsilon(multipliers * rounds, DELTA)
        assert found == pytest.approx(renyi(together, rounds, DELTA), rel=5e-3)
        assert found == pytest.approx(shown, abs=0.051)


def test_rounds_and_kinds_of_noise_add_up():
    """Inverse squares of Gaussian noise multipliers add up, in any order."""
    assert epsilon([4.0] * 16, DELTA) == pytest.approx(epsilon([1.0], DELTA))
    assert epsilon([3.0, 4.0], DELTA) == pytest.approx(epsilon([4.0, 3.0], DELTA))
    assert epsilon([3.0, 4.0], DELTA) == pytest.approx(epsilon([12 / 5], DELTA))
    assert epsilon([], DELTA) == 0.0
