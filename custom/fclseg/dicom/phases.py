"""The phases of a slice: which of its images belong to which moment of the cycle.

The slices of a stack are acquired in one breath-hold each. Some have a phase more or less than the others, because the
heart was faster or a file is lost. Such a slice is interpolated linearly at the moments of the complete ones.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

TRIGGER, INSTANCE = "TriggerTime", "InstanceNumber"
CLOCKS = (TRIGGER, "TemporalPositionIdentifier", INSTANCE)
SAME_STEP = 0.03
"""Steps that differ by less than this fraction are the same: then times are compared as they are, not relative to the
cycle."""

Mix = tuple[int, int, float]
"""Two images of a slice and the weight of the second."""


def clock(headers: Sequence[Any]) -> str:
    """The first tag that orders phases and that all files have: the trigger time in ms, or a number that counts."""
    return next((name for name in CLOCKS if all(number(one, name) is not None for one in headers)), INSTANCE)


def number(header: Any, name: str) -> float | None:
    value = getattr(header, name, None)
    return None if value is None or str(value) == "" else float(value)


def mixes(headers: Sequence[Any], like: Sequence[Any]) -> list[Mix]:
    """How the images of a slice make up the phases of a complete slice."""
    if len(headers) == len(like):
        return [(index, index, 0.0) for index in range(len(like))]
    own, wanted = _times(headers, like), _times(like, like)
    found = []
    for time in wanted:
        after = int(np.searchsorted(own, time, side="right")) % len(own)
        before = (after - 1) % len(own)
        gap, passed = (own[after] - own[before]) % 1.0 or 1.0, (time - own[before]) % 1.0
        found.append((before, after, float(passed / gap)))
    return found


def nearest(mix: Mix) -> int:
    before, after, weight = mix
    return after if weight > 0.5 else before


def _times(headers: Sequence[Any], like: Sequence[Any]) -> np.ndarray:
    """Moments within the cycle, from 0 to below 1."""
    if clock(headers) != TRIGGER or clock(like) != TRIGGER or len(headers) < 2 or len(like) < 2:
        return np.arange(len(headers)) / len(headers)
    own, other = (np.array([float(one.TriggerTime) for one in group]) for group in (headers, like))
    steps = [float(np.median(np.diff(times))) for times in (own, other)]
    if min(steps) <= 0:
        return np.arange(len(headers)) / len(headers)
    same = abs(steps[0] - steps[1]) <= SAME_STEP * steps[1]
    start, length = (other[0], np.ptp(other) + steps[1]) if same else (own[0], np.ptp(own) + steps[0])
    return (own - start) / length % 1.0
