"""Gaussian noise on unit features, and how much one patient can change what it is added to."""

import numpy as np
import torch


def add_noise(vectors: torch.Tensor, deviation: float, random: np.random.Generator) -> torch.Tensor:
    """Independent Gaussian noise of this standard deviation on each number."""
    noise = random.standard_normal(tuple(vectors.shape)) * deviation
    return vectors + torch.from_numpy(noise).to(vectors)


def sensitivity(owners: np.ndarray, groups: np.ndarray) -> float:
    """The largest Euclidean distance between what leaves with and without one patient's images exchanged for others.

    ``owners`` [K, p] are the patients whose images are in each feature (-1: none), ``groups`` [K] the vector into whose
    mean each feature goes. A unit feature moves by at most 2, so the mean of a group of n features, c of them with the
    patient, moves by at most 2 c / n. Numbers of slices and partitions stay: the site reports them anyway.
    """
    sizes = np.bincount(groups)
    largest = 0.0
    for patient in np.unique(owners[owners >= 0]):
        counts = np.bincount(groups[(owners == patient).any(axis=1)], minlength=len(sizes))
        largest = max(largest, float(np.sum((2.0 * counts / sizes) ** 2)))
    return largest**0.5
