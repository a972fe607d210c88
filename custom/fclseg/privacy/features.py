"""What protects features: means per partition instead of single slices (prototypes), and Gaussian noise with its
sensitivity, the most that one patient can change."""

import numpy as np
import torch


def group_of_each(partitions: torch.Tensor, per_partition: int) -> torch.Tensor:
    """A group number for each feature [K]. The features of a partition are assigned to ``per_partition`` groups in
    turn. Groups are numbered without gaps; a partition with fewer features than groups has one group per feature."""
    found = torch.empty_like(partitions, dtype=torch.int64)
    for partition in partitions.unique():
        places = (partitions == partition).nonzero()[:, 0]
        found[places] = int(partition) * per_partition + torch.arange(len(places)) % per_partition
    return found.unique(return_inverse=True)[1]


def group_means(features: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """The mean feature of each group [G, D]."""
    count = int(groups.max()) + 1
    total = features.new_zeros(count, features.shape[1]).index_add(0, groups, features)
    return total / groups.bincount(minlength=count)[:, None].to(features)


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
