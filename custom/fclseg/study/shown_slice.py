"""Chooses the slice of the visual comparison. Only the ground truth matters, so it is the same for every row."""

from collections.abc import Collection

import numpy as np

from fclseg.anatomy.base import Anatomy
from fclseg.data.slices import SliceStore, StoredVolume


def shown_slice(store: SliceStore, patients: Collection[str], anatomy: Anatomy) -> tuple[StoredVolume, int]:
    """A volume and the number of a stored slice: the first held-out volume that has all structures in one slice, and
    the clearest slice of its middle part (in the heart: mid-ventricular)."""
    volumes = [one for one in store.volumes if one.labelled and one.patient in patients]
    measured = [(one, structure_areas(store.labels[one.start : one.stop], anatomy)) for one in volumes]
    for volume, areas in sorted(measured, key=lambda pair: pair[0].patient):
        if (areas > 0).all(axis=1).any():
            return volume, volume.start + clearest(areas)
    volume, areas = max(measured, key=lambda pair: pair[1].sum(axis=1).max())
    return volume, volume.start + int(areas.sum(axis=1).argmax())


def structure_areas(labels: np.ndarray, anatomy: Anatomy) -> np.ndarray:
    """Pixel counts [slices, structures] of label maps [slices, H, W]."""
    found = [(np.asarray(labels) == structure.value).sum(axis=(1, 2)) for structure in anatomy.structures]
    return np.stack(found, axis=1)


def clearest(areas: np.ndarray) -> int:
    """The slice that shows all structures best, among those that have all structures and are not in the outer quarters.

    For each slice and structure, take the area relative to the structure's largest area. The slice whose smallest such
    ratio is largest wins."""
    complete = np.flatnonzero((areas > 0).all(axis=1))
    outer = len(complete) // 4
    middle = complete[outer : len(complete) - outer]
    shares = (areas[middle] / areas.max(axis=0)).min(axis=1)
    return int(middle[shares.argmax()])
