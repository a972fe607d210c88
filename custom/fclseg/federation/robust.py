"""Averages that one bad site cannot take over: bounds on weights and updates, and two robust means.

Honest runs are not touched by the bounds: a contribution within them is averaged exactly as it came.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fclseg.federation.states import Arrays

MEAN_RULE, MEDIAN_RULE, TRIMMED_RULE = "mean", "median", "trimmed_mean"
RULES = (MEAN_RULE, MEDIAN_RULE, TRIMMED_RULE)
"""How contributions become one network. The last two take each number on its own, count every site alike (n_c is not
used) and so cost accuracy where sites differ in size."""

REFUSE, CLIP, OFF = "refuse", "clip", "off"
OUTLIERS = (REFUSE, CLIP, OFF)
"""What happens to an update that is far longer than the others'."""


@dataclass(frozen=True)
class Protection:
    """How the server guards a run against single bad sites."""

    rule: str = MEAN_RULE
    outliers: str = REFUSE
    factor: float = 10.0  # an update is an outlier beyond this many times the median norm
    weight_cap: float = 10.0  # no site counts more than this many times the median site


TRIMMED_SHARE = 0.25
"""The share of sites that the trimmed mean leaves out at each end, for each number."""


def lower_median(values: Sequence[float]) -> float:
    """The middle value, or the smaller of the two in the middle: of two sites, the one with less to say is believed."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def update_norm(sent: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray]) -> float:
    """Euclidean norm of what a site changed in a component, BatchNorm's statistics included."""
    total = 0.0
    for name, array in sent.items():
        if np.issubdtype(array.dtype, np.floating):
            difference = array.astype(np.float64) - before[name]
            total += float(np.vdot(difference, difference))
    return math.sqrt(total)


def shorten(sent: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray], scale: float) -> Arrays:
    """The component with its update multiplied by ``scale``; counters pass as they are."""
    return {
        name: (before[name] + scale * (array.astype(np.float64) - before[name])).astype(array.dtype)
        if np.issubdtype(array.dtype, np.floating)
        else array
        for name, array in sent.items()
    }


def capped(samples: Mapping[str, int], cap: float) -> dict[str, int]:
    """The sites' weights n_c, none larger than ``cap`` times the median one."""
    most = max(1, math.floor(cap * lower_median(list(samples.values()))))
    return {site: min(count, most) for site, count in samples.items()}


def combine_by_coordinate(states: Sequence[Mapping[str, np.ndarray]], rule: str) -> Arrays:
    """Coordinate-wise median (Yin et al. 2018) or trimmed mean of the sites' networks, in float64, rounded once."""
    dropped = math.ceil(TRIMMED_SHARE * len(states)) if len(states) > 2 else 0
    result: Arrays = {}
    for name, first in states[0].items():
        stack = np.sort(np.stack([state[name].astype(np.float64) for state in states]), axis=0)
        middle = np.median(stack, axis=0) if rule == MEDIAN_RULE else stack[dropped : len(stack) - dropped].mean(axis=0)
        result[name] = np.asarray(np.rint(middle) if np.issubdtype(first.dtype, np.integer) else middle).astype(
            first.dtype
        )
    return result
