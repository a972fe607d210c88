"""What the attacker has and what it is after: vectors as sites send them, with the truth that only we know."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fclseg.data.augment import Views
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import SliceStore
from fclseg.errors import DataError
from fclseg.methods.fedca import public_images
from fclseg.presets import Preset
from fclseg.privacy.protections import PrivacySettings
from fclseg.privacy.vectors import SharedVectors, VectorMaker
from fclseg.randomness import derive_seed, generator

SITE_SIZE = 10
"""Patients per site, of the attacker's and of the victims': prototypes blur more where there are more patients."""


@dataclass(frozen=True)
class Leak:
    """Vectors that left and what each of them was made of."""

    features: torch.Tensor  # [K, D]: for each view the vector that it went into
    partitions: torch.Tensor  # [K], int64
    views: torch.Tensor  # [K, 1, v, v]
    rows: np.ndarray  # [K]: the slice in the store
    vector: np.ndarray  # [K]: which vector it is


def joined(leaks: Sequence[Leak]) -> Leak:
    starts = np.cumsum([0, *(int(leak.vector.max()) + 1 for leak in leaks[:-1])])
    return Leak(
        torch.cat([leak.features for leak in leaks]),
        torch.cat([leak.partitions for leak in leaks]),
        torch.cat([leak.views for leak in leaks]),
        np.concatenate([leak.rows for leak in leaks]),
        np.concatenate([leak.vector + start for leak, start in zip(leaks, starts, strict=True)]),
    )


def patients_of(store: SliceStore, rows: np.ndarray) -> np.ndarray:
    """The name of each slice's patient."""
    return np.asarray([volume.patient for volume in store.volumes])[store.volume[rows]]


class Material:
    """Makes leaks of patients with one network and the protections of a run."""

    def __init__(self, network: nn.Module, store: SliceStore, preset: Preset, settings: PrivacySettings, seed: int = 0):
        self.network, self.store, self.preset, self.settings, self.seed = network, store, preset, settings, seed
        self._public = public_images(preset) if settings.mix > 1 else torch.zeros(0)

    def leak(self, patients: Sequence[str], banks: int = 1, frame: int | None = None) -> Leak:
        """``banks`` banks of each site of ``SITE_SIZE`` patients; ``frame`` 0 or 1: of each patient's first or second
        volume alone."""
        found = [
            self._bank(SliceSampler(self.store, rows, self.preset.pretraining.batch_size), (site, bank, frame))
            for site, rows in enumerate(self._sites(patients, frame))
            for bank in range(banks)
        ]
        return joined(found)

    def rows(self, patients: Sequence[str], frame: int | None = None) -> np.ndarray:
        """Slices of these patients."""
        rows = self.store.select(patients)
        return rows if frame is None else rows[self._order()[self.store.volume[rows]] == frame]

    def _sites(self, patients: Sequence[str], frame: int | None) -> Iterator[np.ndarray]:
        for start in range(0, len(patients), SITE_SIZE):
            rows = self.rows(patients[start : start + SITE_SIZE], frame)
            if not len(rows):
                raise DataError("some patients have only one frame, and this attack compares two of each patient")
            yield rows

    def _order(self) -> np.ndarray:
        """For each volume its place among its patient's."""
        names = [volume.patient for volume in self.store.volumes]
        return np.asarray([names[:number].count(name) for number, name in enumerate(names)])

    def _bank(self, sampler: SliceSampler, key: tuple[Any, ...]) -> Leak:
        views, draws = Views(self.preset), generator(self.seed, "attack", *key)
        noise = np.random.default_rng(derive_seed(self.seed, "noise", *key))
        maker = VectorMaker(self.network, sampler, views, self.settings, self._public, draws, noise)
        return _known(maker.make(self.preset.pretraining.bank_size), self.store)


def _known(made: SharedVectors, store: SliceStore) -> Leak:
    partitions = torch.from_numpy(store.partition[made.rows].astype(np.int64))
    return Leak(made.features[made.groups], partitions, made.views, made.rows, made.groups.numpy())
