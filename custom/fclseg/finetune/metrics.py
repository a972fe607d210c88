"""Metrics of one volume, per structure. A metric that is added to ``METRICS`` appears in every table and report.

If a structure is absent from both prediction and ground truth, they agree: Dice 1, distance 0. If only one of them has
it, Dice is 0 and the surface distance is undefined. It is then set to the diagonal of the volume, the largest possible
distance, so that a missed structure never improves an average.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from monai.metrics import compute_dice, compute_hausdorff_distance
from monai.networks.utils import one_hot

Spacing = tuple[float, float, float]
"""In mm: in-plane row, in-plane column, distance between slices."""


def _one_hot(labels: np.ndarray, classes: int) -> torch.Tensor:
    """Label map [n, H, W] -> [1, classes, n, H, W]."""
    return one_hot(torch.from_numpy(labels.astype(np.int64))[None, None], classes)


def volume_dice(prediction: np.ndarray, truth: np.ndarray, classes: int) -> np.ndarray:
    """Dice [classes - 1] of the structures 1, 2, ... of a volume given as label maps [n, H, W]."""
    scores = compute_dice(
        _one_hot(prediction, classes), _one_hot(truth, classes), include_background=False, ignore_empty=False
    )
    return scores[0].numpy()


def volume_hd95(prediction: np.ndarray, truth: np.ndarray, classes: int, spacing: Spacing) -> np.ndarray:
    """HD95 in mm [classes - 1]: the 95th percentile of the Hausdorff distance."""
    row, column, between = (float(step) for step in spacing)
    steps = (between, row, column)
    diagonal = float(np.linalg.norm(np.multiply(steps, truth.shape)))
    distances = np.zeros(classes - 1)
    for structure in range(1, classes):
        mine, theirs = prediction == structure, truth == structure
        if mine.any() != theirs.any():
            distances[structure - 1] = diagonal
        elif mine.any():
            pair = (torch.from_numpy(mask[None, None].astype(np.uint8)) for mask in (mine, theirs))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # MONAI 1.6 warns about its own call
                result = compute_hausdorff_distance(*pair, include_background=True, percentile=95, spacing=list(steps))
            distances[structure - 1] = float(result)
    return distances


@dataclass(frozen=True)
class Metric:
    """One value per structure of a volume, and how tables show it."""

    name: str  # name of its columns: "hd95"
    title: str  # title for people: "HD95"
    compute: Callable[
        [np.ndarray, np.ndarray, int, Spacing], np.ndarray
    ]  # arguments: prediction, truth, classes, spacing
    unit: str = ""
    decimals: int = 3
    note: str = ""  # what a reader must know about the value
    slow: bool = False  # left out if a bundle's ``hd95`` is false

    @property
    def column(self) -> str:
        """The metric's name in files, with the unit: ``hd95_mm``."""
        return f"{self.name}_{self.unit}" if self.unit else self.name

    def describe(self) -> dict[str, Any]:
        """The description as plain values, for files that are read without this module."""
        names = ("name", "title", "column", "unit", "decimals", "note")
        return {name: getattr(self, name) for name in names}


METRICS = (
    Metric("dice", "Dice", lambda prediction, truth, classes, spacing: volume_dice(prediction, truth, classes)),
    Metric(
        "hd95",
        "HD95",
        volume_hd95,
        unit="mm",
        decimals=1,
        note="If a prediction misses a structure completely, its distance is the diagonal of the volume.",
        slow=True,
    ),
)
"""Dice comes first, because methods are compared by it."""
