"""What a training changed in a patient: how much the outlines differ, and the measurements before and after."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fclseg.anatomy.records import Volume
from fclseg.labelling.numbers import numbers_of
from fclseg.labelling.outlines import Outliner


def change_of(
    volumes: Sequence[Volume], before: Outliner, after: Outliner, phases: Mapping[int, str]
) -> dict[str, Any] | None:
    """The change of a patient's ED and ES; None if one of the networks has not outlined them."""
    sides = []
    for outliner in (before, after):
        found = {volume: outliner.known(volume) for volume in volumes}
        sides.append({volume: outline.labels for volume, outline in found.items() if outline is not None})
    both = [volume for volume in volumes if all(volume in side for side in sides)]
    if not both:
        return None
    agreement = float(np.mean([overlap_of_structures(*(side[volume] for side in sides)) for volume in both]))
    numbers = [numbers_of({v: side[v] for v in both}, phases, after.model.anatomy) for side in sides]
    return {"agreement": agreement, "before": numbers[0], "after": numbers[1]}


def overlap_of_structures(one: np.ndarray, other: np.ndarray) -> float:
    """Mean Dice over the structures that either label map has."""
    values = sorted({*np.unique(one).tolist(), *np.unique(other).tolist()} - {0})
    sides = [(one == value, other == value) for value in values]
    return float(np.mean([2 * np.sum(a & b) / (np.sum(a) + np.sum(b)) for a, b in sides])) if values else 1.0
