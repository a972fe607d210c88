"""Gaussian noise on unit features, and the sensitivity: how much one patient can change the features."""

import numpy as np
import torch


def add_noise(vectors: torch.Tensor, deviation: float, random: np.random.Generator) -> torch.Tensor:
    """Add independent Gaussian noise of this standard deviation to each value."""
    noise = random.standard_normal(tuple(vectors.shape)) * deviation
    return vectors + torch.from_numpy(noise).to(vectors)


def sensitivity(owners: np.ndarray, groups: np.ndarray) -> float:
    """The largest Euclidean distance by which what leaves can change if one patient's images are replaced by others.

    ``owners`` [K, p] are the patients whose images are in each feature (-1: none). ``groups`` [K] is the vector whose
    mean includes each feature. A unit feature moves by at most 2, so the mean of a group of n features, c of them with
    the patient, moves by at most 2 c / n. The numbers of slices and partitions are assumed fixed, because the site
    reports them anyway.
    """
    sizes = np.bincount(groups)
    largest = 0.0
    for patient in np.unique(owners[owners >= 0]):
        counts = np.bincount(groups[(owners == patient).any(axis=1)], minlength=len(sizes))
        largest = max(largest, float(np.sum((2.0 * counts / sizes) ** 2)))
    return largest**0.5
