"""How good an attack is: likeness of images, and the area under the ROC curve."""

import numpy as np
import torch
from monai.metrics.regression import PSNRMetric, SSIMMetric
from scipy.stats import rankdata

WINDOW = 11
"""Side of the Gaussian window of the structural similarity, as in Wang et al. (2004)."""


def ssim(images: torch.Tensor, truth: torch.Tensor, window: int = WINDOW) -> torch.Tensor:
    """Structural similarity of each pair [B] of images [B, 1, H, W] in [0, 1]."""
    return SSIMMetric(spatial_dims=2, data_range=1.0, win_size=window)(images, truth).flatten()


def psnr(images: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Peak signal-to-noise ratio in dB of each pair [B]."""
    return PSNRMetric(max_val=1.0)(images, truth).flatten()


def standard_error(scores: np.ndarray, patients: np.ndarray) -> float:
    """Standard error of a mean score. Slices of a patient are alike, so each patient counts as one observation."""
    names, who = np.unique(patients, return_inverse=True)
    means = np.bincount(who, scores) / np.bincount(who)
    return float(means.std(ddof=1) / len(names) ** 0.5) if len(names) > 1 else float("nan")


def area_under_curve(positive: np.ndarray, negative: np.ndarray) -> float:
    """The probability that a score of the first kind is above one of the second, ties counted half."""
    ranks = rankdata(np.concatenate([positive, negative]))[: len(positive)]
    return float((ranks.sum() - len(positive) * (len(positive) + 1) / 2) / (len(positive) * len(negative)))
