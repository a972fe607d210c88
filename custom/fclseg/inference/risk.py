"""How likely it is that a result is bad, from what can be seen without labels: one logistic regression."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from fclseg.inference.measure import Measurement

FEATURES = ("mean", "lowest", "strokes", "mass", "search", "remarks")
"""1 - mean predicted Dice, 1 - lowest predicted Dice, difference of the ventricles' stroke volumes, change of a wall's
mass over the cycle, 1 - the heart's part of what the search found, and number of remarks (at most 3)."""
MOST_REMARKS = 3


def features(
    volumes: Sequence[Measurement], predicted: Sequence[Mapping[str, float]], cavities: Sequence[str], remarks: int
) -> np.ndarray:
    """The features of one patient, from the volumes that count (ED and ES) and their predicted Dice."""
    dice = [value for one in predicted for value in one.values()] or [0.0]
    searches = [one.search for one in volumes if one.search is not None]
    return np.array(
        [
            1 - float(np.mean(dice)),
            1 - min(dice),
            _strokes(volumes, cavities),
            _mass(volumes),
            1 - min(searches, default=1.0),
            min(remarks, MOST_REMARKS) / MOST_REMARKS,
        ]
    )


def _strokes(volumes: Sequence[Measurement], cavities: Sequence[str]) -> float:
    if len(volumes) != 2:
        return 0.0
    strokes = [volumes[0].ml[name] - volumes[1].ml[name] for name in cavities]
    filled = max((volumes[0].ml[name] for name in cavities), default=0.0)
    return max((abs(a - b) for a, b in pairwise(strokes)), default=0.0) / filled if filled else 1.0


def _mass(volumes: Sequence[Measurement]) -> float:
    if len(volumes) != 2:
        return 0.0
    pairs = [(volumes[0].g[name], volumes[1].g[name]) for name in volumes[0].g]
    return max((abs(a - b) / max(a, b) for a, b in pairs if max(a, b) > 0), default=1.0)


def probability(weights: Sequence[float], found: np.ndarray) -> float:
    """The risk of one patient."""
    return float(1 / (1 + np.exp(-(found @ np.array(weights[:-1]) + weights[-1]))))


def fit(rows: np.ndarray, bad: np.ndarray, ridge: float = 0.05, steps: int = 30) -> tuple[float, ...]:
    """Weights and constant by Newton's method. Bad and good patients have the same weight together; the ridge keeps
    few patients from deciding."""
    design = np.hstack([rows, np.ones((len(rows), 1))])
    weights = np.zeros(design.shape[1])
    share = np.where(bad, 0.5 / max(1, bad.sum()), 0.5 / max(1, (~bad).sum()))
    penalty = ridge * np.diag([*[1.0] * rows.shape[1], 1e-6]) / len(rows)
    for _ in range(steps):
        sure = 1 / (1 + np.exp(-design @ weights))
        slope = design.T @ (share * (sure - bad)) + penalty @ weights
        curve = design.T @ (design * (share * sure * (1 - sure))[:, None]) + penalty
        weights = weights - np.linalg.solve(curve, slope)
    return tuple(float(one) for one in weights)
