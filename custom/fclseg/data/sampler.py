"""Batches of slices for local training, drawn with a generator so that an epoch replays exactly."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fclseg.data.slices import SliceStore
from fclseg.errors import DataError


@dataclass
class Batch:
    images: torch.Tensor  # [B, 1, H, W], float32 in [0, 1]
    partitions: torch.Tensor  # [B], int64: s, the partition of the volume that contains the slice
    partners: torch.Tensor | None = None  # [B, 1, H, W]: a slice of the same partition s of another volume j
    labels: torch.Tensor | None = None  # [B, H, W], int64
    rows: np.ndarray | None = None  # [B]: indices of the slices in their store

    @property
    def partner_images(self) -> torch.Tensor:
        """The partners, for methods that require them."""
        if self.partners is None:
            raise DataError("the method compares slices of different volumes, but the batch has no partners")
        return self.partners

    @property
    def label_maps(self) -> torch.Tensor:
        """The labels as one channel [B, 1, H, W], for methods that require them."""
        if self.labels is None:
            raise DataError("the method trains on labels, but the batch has none")
        return self.labels[:, None]


class SliceSampler:
    """Shuffled epochs over some slices of a store.

    ``partners=True`` pairs each slice with another slice of the same partition from a different patient. If the site
    has only one patient, the partner is from another volume of that patient; if there is only one volume, from that
    volume.
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
        self.with_labels = labels
        if not len(self.indices):
            raise DataError(
                "there is no slice to train on; check the patients of the split and whether they have labels"
            )
        if labels and not store.labelled[self.indices].all():
            raise DataError("some slices for training with labels have none; select slices with labelled=True")
        self._partners = PartnerTable(store, self.indices) if partners else None

    def __len__(self) -> int:
        """The number of slices: n_c, the weight of the site."""
        return len(self.indices)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches only, because BatchNorm in the heads needs more than one sample; at least one step."""
        return max(1, len(self.indices) // self.batch_size)

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass in random order; all randomness comes from the generator. An incomplete last batch is dropped.

        A site with fewer slices than a batch yields one batch of all its slices (a single slice twice, for BatchNorm).
        """
        order = torch.randperm(len(self.indices), generator=generator).numpy()
        order = np.repeat(order, 2) if len(order) == 1 else order
        for step in range(self.steps_per_epoch):
            yield self._batch(order[step * self.batch_size : (step + 1) * self.batch_size], generator)

    def draw(self, generator: torch.Generator) -> Batch:
        """One batch of slices drawn with replacement, outside any epoch."""
        return self._batch(torch.randint(len(self.indices), (self.batch_size,), generator=generator).numpy(), generator)

    def _batch(self, positions: np.ndarray, generator: torch.Generator) -> Batch:
        rows = self.indices[positions]
        labels = (
            torch.from_numpy(self.store.labels[rows].astype(np.int64)).to(self.device) if self.with_labels else None
        )
        partners = None
        if self._partners is not None:
            partners = self._images(self._partners.draw(positions, generator))
        partitions = torch.from_numpy(self.store.partition[rows].astype(np.int64)).to(self.device)
        return Batch(self._images(rows), partitions, partners, labels, rows)

    def _images(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(self.store.images[rows].astype(np.float32))[:, None].to(self.device)


class PartnerTable:
    """The possible partners of each slice: slices of the same partition s in another patient.

    Slices are sorted by (partition, patient, volume). The slices that a slice must *not* be paired with are then one
    range within its partition, and drawing partners for a whole batch is one vector operation.
    """

    def __init__(self, store: SliceStore, indices: np.ndarray):
        volume, partition = store.volume[indices], store.partition[indices]
        names = [stored.patient for stored in store.volumes]
        patient = np.unique(names, return_inverse=True)[1][volume]
        order = np.lexsort((volume, patient, partition))
        self.sorted = indices[order]
        slices = np.arange(len(indices))
        first, last = _runs(partition[order])
        skip_first, skip_last = first, first  # a single slice can only be paired with itself
        for own in (
            (slices, slices + 1),
            _runs(partition[order], volume[order]),
            _runs(partition[order], patient[order]),
        ):
            possible = last - first > own[1] - own[0]
            skip_first, skip_last = np.where(possible, own[0], skip_first), np.where(possible, own[1], skip_last)
        place = np.argsort(order)
        self.first, self.last = first[place], last[place]
        self.skip_first, self.skip_last = skip_first[place], skip_last[place]

    def draw(self, positions: np.ndarray, generator: torch.Generator) -> np.ndarray:
        """One partner (a row of the store) for the slice at each position of ``indices``, uniformly."""
        first, last = self.first[positions], self.last[positions]
        skip_first, skip_last = self.skip_first[positions], self.skip_last[positions]
        uniform = torch.rand(len(positions), generator=generator, dtype=torch.float64).numpy()
        drawn = first + (uniform * (last - first - (skip_last - skip_first))).astype(np.int64)
        return self.sorted[np.where(drawn >= skip_first, drawn + skip_last - skip_first, drawn)]


def _runs(*keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of the run of equal keys that each element belongs to; keys are sorted."""
    new = np.ones(len(keys[0]), dtype=bool)
    new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    run = np.cumsum(new) - 1
    starts = np.flatnonzero(new)
    return starts[run], np.append(starts[1:], len(new))[run]
