"""Turns single Dice values into the figures of a table: mean and sd as in the paper, and paired comparisons.

A value belongs to one fine-tuning, identified by :class:`Run`. Two rows of a table are compared on the runs they share,
so that the effects of the site, the fold and the choice of labelled patients cancel out.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, sqrt
from statistics import fmean, stdev
from typing import NamedTuple


class Run(NamedTuple):
    """What two rows of a table are matched by: site, fold and seed of a fine-tuning. If sites train together, the site
    is the one whose patients it is scored on."""

    site: str
    fold: int
    seed: int


@dataclass(frozen=True)
class Summary:
    """One cell of a table. ``sd`` is taken over ``groups`` means (of sites or folds); ``runs`` counts all values."""

    mean: float
    sd: float | None
    groups: int
    runs: int


@dataclass(frozen=True)
class Comparison:
    """A row against the baseline on shared runs; ``low``, ``high``: 95 % CI of the mean difference (Student's t)."""

    pairs: int
    difference: float
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None = None


def summarise(values: Mapping[Run, float], spread: str) -> Summary:
    """Mean and sample sd over the groups given by ``spread``: ``site`` (the paper's local tables, each site's folds and
    seeds are averaged first) or ``fold`` (tables whose fine-tunings belong to no site)."""
    groups = defaultdict(list)
    for run, value in values.items():
        if not isnan(value):
            groups[getattr(run, spread)].append(value)
    means = [fmean(group) for group in groups.values()]
    if not means:
        raise ValueError("a summary needs at least one value")
    return Summary(
        mean=fmean(means),
        sd=stdev(means) if len(means) > 1 else None,
        groups=len(means),
        runs=sum(map(len, groups.values())),
    )


def compare(row: Mapping[Run, float], baseline: Mapping[Run, float]) -> Comparison | None:
    """Two-sided Wilcoxon signed-rank test and t interval over the shared runs; None if there are none."""
    from scipy import stats  # takes a second to import, and a table without comparisons does not need it

    differences = [row[run] - baseline[run] for run in sorted(row.keys() & baseline.keys())]
    differences = [value for value in differences if not isnan(value)]
    if not differences:
        return None
    n, mean = len(differences), fmean(differences)
    low = high = p = None
    if n > 1:
        half = float(stats.t.ppf(0.975, n - 1)) * stdev(differences) / sqrt(n)
        low, high = mean - half, mean + half
        p = float(stats.wilcoxon(differences).pvalue) if any(differences) else 1.0
    return Comparison(n, mean, low, high, p)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction of one family of tests. None (no test was possible) is not part of the family."""
    tests = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, i) in enumerate(tests):
        running = max(running, min(1.0, p * (len(tests) - rank)))
        corrected[i] = running
    return corrected
