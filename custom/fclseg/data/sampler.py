"""Batches of slices for local training, drawn with a generator so that an epoch replays exactly."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fclseg.data.slices import SliceStore


@dataclass
class Batch:
    images: torch.Tensor  # [B, 1, H, W], float32 in [0, 1]
    partitions: torch.Tensor  # [B], int64: s, the ordered partition of the volume the slice lies in
    partners: torch.Tensor | None = None  # [B, 1, H, W]: a slice of the same partition s of another volume j
    labels: torch.Tensor | None = None  # [B, H, W], int64


class SliceSampler:
    """Shuffled epochs over some slices of a store.

    ``partners=True`` adds to each slice another one of its partition from a different patient (where the site has just
    one patient: from another volume of it; with one volume: from the same volume).
    """

    def __init__(
        self,
        store: SliceStore,
        indices: np.ndarray,
        batch_size: int,
        *,
        partners: bool = False,
        labels: bool = False,
        device: torch.device | str = "cpu",
    ):
        self.store, self.batch_size, self.device = store, batch_size, device
        self.indices = np.asarray(indices)
        self.with_partners, self.with_labels = partners, labels

    def __len__(self) -> int:
        """The number of slices: n_c, the weight of the site."""
        return len(self.indices)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches only, because BatchNorm in the heads needs more than one sample; at least one step."""
        return max(1, len(self.indices) // self.batch_size)
