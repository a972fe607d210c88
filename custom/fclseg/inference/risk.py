"""How likely it is that a result is bad, from what can be seen without labels: one logistic regression.

Two features. Others were tried on 46 patients of four hospitals and say little more: remarks about the outlines, the
difference of the ventricles' stroke volumes, the change of the wall's mass, and how the heart was found.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fclseg.inference.measure import Measurement

FEATURES = ("mean", "first")
"""1 - mean predicted Dice of all structures, and 1 - the lowest expected Dice of the first cavity, on which the first
ejection fraction depends."""


def features(volumes: Sequence[Measurement], predicted: Sequence[Mapping[str, float]], first: str | None) -> np.ndarray:
    """The features of one patient, from the volumes that count (ED and ES) and their predicted Dice."""
    dice = [value for one in predicted for value in one.values()] or [0.0]
    expected = [one.reliability[first][1] for one in volumes if first in one.reliability]
    return np.array([1 - float(np.mean(dice)), 1 - min(expected, default=0.0)])


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
