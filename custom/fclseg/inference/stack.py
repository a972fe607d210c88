"""Whether slices are in order, ventricles on their sides and outlines taper. A NIfTI header does not tell."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fclseg.anatomy.base import Anatomy
from fclseg.inference.measure import cavities

MARGIN_MM = 10.0
SWAPPED = 0.05
"""Two neighbouring slices count as swapped if exchanging them makes neighbours more alike: the sum of 1 - correlation
falls by this fraction. In 283 stacks of 143 patients (ACDC, M&Ms, Sunnybrook; experts' outlines): at most .058 as they
are, one above .05; above .05 for 87 % of 2,220 exchanged pairs (at an end of the heart 80 %, elsewhere 89 %), nearly
always at the right pair. A slice that is missing in the middle cannot be told from the images alone."""
USUAL_SIDE = (100.0, 280.0)
"""Degrees from the LV to the RV in the axes of `Volume`, seen from the apex (133 to 242 in 140 patients)."""
FEWEST = 6
VANISHED, RETURNED = 0.1, 0.2
"""Fractions of the largest area of a cavity. Ventricles taper: in none of 288 stacks of 144 patients does an expert's
outline of LV or RV fall below the first and exceed the second in the next slice, seen from the largest one."""


def stack_flags(voxels: np.ndarray, labels: np.ndarray, spacing: Sequence[float], anatomy: Anatomy) -> list[str]:
    """Flags for images and labels [X, Y, S]."""
    if not anatomy.compact:
        return []
    flags = [
        f"{one.structure} nearly vanishes in slice {gap + 1} and is back in slice {back + 1}: check both slices"
        for one in cavities(anatomy)
        for gap, back in returns(np.count_nonzero(labels == anatomy.structure(one.structure).value, axis=(0, 1)))
    ]
    if (pair := swapped_slices(voxels, labels, spacing)) is not None:
        flags.append(f"slices {pair + 1} and {pair + 2} may be swapped: check the order of the slices")
    if _is_mirrored(labels, spacing, anatomy):
        first, second = (one.structure for one in cavities(anatomy))
        flags.append(
            f"{second} lies on the other side of the {first} than usual: {second} and {first} may be exchanged, or the "
            "image is mirrored"
        )
    return flags


def returns(areas: np.ndarray) -> list[tuple[int, int]]:
    """Slices in which a cavity is nearly gone, each with the next one, farther from the largest, in which it is not."""
    largest = int(np.argmax(areas))
    sides = (range(largest, len(areas)), range(largest, -1, -1))
    gone, there = areas < VANISHED * areas[largest], areas > RETURNED * areas[largest]
    return [(here, beyond) for side in sides for here, beyond in pairwise(side) if gone[here] and there[beyond]]


def swapped_slices(voxels: np.ndarray, labels: np.ndarray, spacing: Sequence[float]) -> int | None:
    """The first of two slices whose exchange would make the stack smoother."""
    used = np.argwhere(labels)
    if not len(used):
        return None
    low, high = used.min(axis=0), used.max(axis=0) + 1
    margin = [round(MARGIN_MM / size) for size in spacing[:2]] + [0]
    box = tuple(slice(max(0, a - m), b + m) for a, b, m in zip(low, high, margin, strict=True))
    planes = np.moveaxis(voxels[box].astype(np.float64), -1, 0).reshape(high[2] - low[2], -1)
    if len(planes) < FEWEST:
        return None
    planes = planes - planes.mean(axis=1, keepdims=True)
    planes /= np.linalg.norm(planes, axis=1, keepdims=True) + np.finfo(float).tiny
    differences = 1 - planes @ planes.T
    length = _length(differences, range(len(planes)))
    gains = []
    for first in range(len(planes) - 1):
        order = list(range(len(planes)))
        order[first], order[first + 1] = order[first + 1], order[first]
        gains.append(1 - _length(differences, order) / max(length, np.finfo(float).tiny))
    best = int(np.argmax(gains))
    return int(low[2]) + best if gains[best] > SWAPPED else None


def _length(differences: np.ndarray, order: Sequence[int]) -> float:
    return float(sum(differences[one, other] for one, other in pairwise(order)))


def _is_mirrored(labels: np.ndarray, spacing: Sequence[float], anatomy: Anatomy) -> bool:
    places = [np.argwhere(labels == anatomy.structure(one.structure).value) for one in cavities(anatomy)]
    if len(places) != 2 or not all(len(place) for place in places):
        return False
    x, y = ((places[1].mean(axis=0) - places[0].mean(axis=0)) * np.asarray(spacing))[:2]
    low, high = USUAL_SIDE
    return not low <= np.degrees(np.arctan2(y, x)) % 360 <= high
