"""Prototypes: mean features per partition instead of features of single slices."""

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
