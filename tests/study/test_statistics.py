"""Statistics against scipy and against values computed by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from fclseg.study.statistics import Run, compare, holm, summarise


def values(table: dict[str, list[float]], seed: int = 0) -> dict[Run, float]:
    return {Run(site, fold, seed): value for site, row in table.items() for fold, value in enumerate(row)}


def test_sd_is_across_sites_of_fold_means():
    summary = summarise(values({"site-1": [0.2, 0.4], "site-2": [0.5, 0.5], "site-3": [0.7, 0.9]}), "site")
    # site means .3 .5 .8: mean 1.6/3; squared deviations sum to .126667, over 2
    assert summary.mean == pytest.approx(0.533333, abs=1e-6)
    assert summary.sd == pytest.approx(math.sqrt(0.1266667 / 2), abs=1e-6)
    assert (summary.groups, summary.runs) == (3, 6)


def test_sd_across_folds_differs_from_sd_across_sites():
    table = values({"site-1": [0.2, 0.4], "site-2": [0.2, 0.4]})
    assert summarise(table, "site").sd == pytest.approx(0)
    assert summarise(table, "fold").sd == pytest.approx(0.1 * math.sqrt(2))


def test_seeds_are_averaged_before_the_sd():
    table = values({"site-1": [0.2], "site-2": [0.4]}) | values({"site-1": [0.4], "site-2": [0.6]}, seed=1)
    assert summarise(table, "site").sd == pytest.approx(0.1 * math.sqrt(2))


def test_one_group_has_no_sd_and_nan_is_left_out():
    summary = summarise({Run("site-1", 0, 0): 0.5, Run("site-1", 1, 0): math.nan}, "site")
    assert (summary.mean, summary.sd, summary.runs) == (0.5, None, 1)
    with pytest.raises(ValueError, match="at least one"):
        summarise({}, "site")


@pytest.mark.parametrize("n", [5, 20, 60])
def test_comparison_equals_scipy(n):
    rng = np.random.default_rng(n)
    ours, other = rng.normal(0.6, 0.1, n), rng.normal(0.55, 0.1, n)
    runs = [Run(f"site-{i % 4}", i // 4, 0) for i in range(n)]
    result = compare(dict(zip(runs, ours, strict=True)), dict(zip(runs, other, strict=True)))
    interval = stats.ttest_rel(ours, other).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high))
    assert result.p == pytest.approx(stats.wilcoxon(ours, other).pvalue)
    assert result.difference == pytest.approx((ours - other).mean())
    assert result.pairs == n


def test_wilcoxon_by_hand():
    # five differences, all positive: one of 2^5 sign patterns, two-sided 2/32
    ours = values({"site-1": [0.5, 0.6, 0.7, 0.8, 0.9]})
    other = values({"site-1": [0.49, 0.58, 0.67, 0.76, 0.85]})
    assert compare(ours, other).p == pytest.approx(2 / 32)


def test_comparison_uses_shared_runs_only():
    ours, other = values({"site-1": [0.5, 0.6, 0.9]}), values({"site-1": [0.4, 0.5]})
    assert compare(ours, other).pairs == 2
    assert compare(ours, values({"site-9": [0.1]})) is None
    assert compare(ours, ours).p == 1.0
    single = compare(values({"site-1": [0.5]}), values({"site-1": [0.4]}))
    assert (single.pairs, single.low, single.p) == (1, None, None)


def test_holm_by_hand():
    # sorted .01 .02 .03 .04 times 4 3 2 1 = .04 .06 .06 .04, made monotone: .04 .06 .06 .06
    assert holm([0.04, None, 0.01, 0.03, 0.02]) == pytest.approx([0.06, None, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
