"""Dice and 95th-percentile Hausdorff distance of one volume, per structure.

Where a structure is absent from prediction and ground truth they agree: Dice 1, distance 0. Where only one of them has
it the overlap is 0 and the surface distance is not defined; it is set to the diagonal of the volume, the largest
distance there could be, so that a missed structure never improves an average.
"""

import warnings

import numpy as np
import torch
from monai.metrics import compute_dice, compute_hausdorff_distance
from monai.networks.utils import one_hot


def _one_hot(labels: np.ndarray, classes: int) -> torch.Tensor:
    """Label map [n, H, W] -> [1, classes, n, H, W]."""
    return one_hot(torch.from_numpy(labels.astype(np.int64))[None, None], classes)


def volume_dice(prediction: np.ndarray, truth: np.ndarray, classes: int) -> np.ndarray:
    """Dice [classes - 1] of the structures 1, 2, ... of a volume given as label maps [n, H, W]."""
    scores = compute_dice(
        _one_hot(prediction, classes), _one_hot(truth, classes), include_background=False, ignore_empty=False
    )
    return scores[0].numpy()


def volume_hd95(
    prediction: np.ndarray, truth: np.ndarray, classes: int, spacing: tuple[float, float, float]
) -> np.ndarray:
    """HD95 in mm [classes - 1]; ``spacing`` is (in-plane row, in-plane column, slice distance)."""
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
