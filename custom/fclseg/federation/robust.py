"""Averages that one bad site cannot dominate: bounds on weights and updates, and two robust means.

The bounds do not affect honest runs: a contribution within them is averaged unchanged.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fclseg.federation.states import Arrays, parameter_names

MEAN_RULE, MEDIAN_RULE, TRIMMED_RULE = "mean", "median", "trimmed_mean"
RULES = (MEAN_RULE, MEDIAN_RULE, TRIMMED_RULE)
"""How contributions are combined. The last two work on each number separately and give all sites equal weight (n_c is
not used), which costs accuracy if sites differ in size."""

REFUSE, OFF = "refuse", "off"
OUTLIERS = (REFUSE, OFF)
"""What happens to an update whose norm is far above the median."""


@dataclass(frozen=True)
class Protection:
    """How the server protects a run against single bad sites."""

    rule: str = MEAN_RULE
    outliers: str = REFUSE
    factor: float = 10.0  # an update is an outlier beyond this many times the median norm
    weight_cap: float = 10.0  # no site counts more than this many times the median weight


TRIMMED_SHARE = 0.25
"""The fraction of sites that the trimmed mean drops at each end, for each number."""


def lower_median(values: Sequence[float]) -> float:
    """The median, or the smaller of the two middle values: of two sites, the one with the smaller value is trusted."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def update_norm(sent: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray]) -> float:
    """Euclidean norm of a site's change to a component, including BatchNorm statistics."""
    total = 0.0
    for name, array in sent.items():
        if np.issubdtype(array.dtype, np.floating):
            difference = array.astype(np.float64) - before[name]
            total += float(np.vdot(difference, difference))
    return math.sqrt(total)


HARMLESS = (0.1, 1.0)
"""Changes that are never refused, relative to the norm of the parameters and of the statistics."""


@dataclass(frozen=True)
class Outlier:
    """An update that is too large to be honest."""

    medians: float  # its norm, in units of the median norm
    excess: float  # its norm, in units of what is allowed; more than 1

    def sentence(self, site: str, component: str) -> str:
        """Why the server does not use it."""
        return f"{site}: the norm of its update of '{component}' is {self.medians:.3g} times the median"


def find_outliers(
    sent: Mapping[str, Mapping[str, np.ndarray]], before: Mapping[str, np.ndarray], factor: float
) -> dict[str, Outlier]:
    """The sites whose change to a component is more than ``factor`` times the median.

    Parameters and BatchNorm's statistics are compared separately. Statistics change far more than parameters, which
    would hide a poisoned weight. Both may always change by a fraction of their own norm (``HARMLESS``): honest sites of
    different sizes differ by more than ``factor`` as long as a target network has hardly moved, or once the statistics
    have settled at one of them.
    """
    parameters = set(parameter_names(before))
    found: dict[str, Outlier] = {}
    for names, harmless in zip((parameters, set(before) - parameters), HARMLESS, strict=True):
        part = {name: before[name] for name in names}
        norms = {site: update_norm({name: state[name] for name in names}, part) for site, state in sent.items()}
        usual = lower_median(list(norms.values()))
        size = update_norm(part, {name: np.zeros_like(part[name]) for name in names})
        allowed = max(factor * usual, harmless * size)
        for site, norm in norms.items():
            if usual and norm > allowed and norm / allowed > found.get(site, Outlier(0.0, 1.0)).excess:
                found[site] = Outlier(norm / usual, norm / allowed)
    return found


LARGE_LOSS = 2.0
"""A loss on labels beyond this many times the median of the other sites is said."""


def large_losses(losses: Mapping[str, float]) -> dict[str, str]:
    """Of three sites or more, those whose loss on their own labels is far above the others': perhaps their labels mean
    something else. The loss is what a site reports, so this finds mistakes and not liars."""
    found: dict[str, str] = {}
    for site, loss in losses.items() if len(losses) > 2 else ():
        others = sorted(other for name, other in losses.items() if name != site)
        usual = others[len(others) // 2]  # of two, the larger: one of them may have easy patients
        if loss > LARGE_LOSS * usual > 0:
            found[site] = f"its loss is {loss / usual:.1f} times that of the others: do its labels mean the same?"
    return found


def capped(samples: Mapping[str, int], cap: float) -> dict[str, int]:
    """The sites' weights n_c, each capped at ``cap`` times the median."""
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
