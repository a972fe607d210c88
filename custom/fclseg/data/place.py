"""Where an organ is in an image: what slices show instead of the middle of the image."""

from typing import Protocol

import numpy as np

from fclseg.anatomy.records import Volume
from fclseg.data.preprocess import UNLABELLED

Centre = tuple[int, int]
"""A voxel of the slices."""


class Locate(Protocol):
    """The middle of the organ in voxels [X, Y, S]; None if it is not found. ``key`` is part of a slice store's name."""

    @property
    def key(self) -> str: ...

    def __call__(self, voxels: np.ndarray, volume: Volume) -> Centre | None: ...


class AroundLabels:
    """The middle of the labelled structures."""

    key = "labels"

    def __call__(self, voxels: np.ndarray, volume: Volume) -> Centre | None:
        if volume.label is None:
            return None
        labels = volume.read_label()
        places = np.argwhere((labels > 0) & (labels != UNLABELLED))[:, :2]
        x, y = places.mean(axis=0) if len(places) else (np.array(labels.shape[:2]) - 1) / 2
        return round(x), round(y)
