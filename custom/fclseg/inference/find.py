"""Finds an organ with the shipped network, for training on images that have no labels."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.records import Volume
from fclseg.data.place import Centre, Locate
from fclseg.resources import shipped_model

if TYPE_CHECKING:
    from fclseg.inference.segment import Segmenter


def shipped_finder(anatomy: Anatomy, device: torch.device | str) -> Locate | None:
    """None if there is no shipped network for this anatomy, or if its organ is shown whole."""
    path = shipped_model(anatomy.bundle)
    return Finder(path, anatomy, device) if anatomy.compact and path.is_file() else None


class Finder:
    """Where a network finds the organ. Frames of one file share the place of the first."""

    def __init__(self, model: Path, anatomy: Anatomy, device: torch.device | str):
        self.model, self.anatomy, self.device = model, anatomy, device
        self._found: tuple[Path, Centre | None] | None = None

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(self.model.read_bytes()).hexdigest()

    @cached_property
    def _segmenter(self) -> "Segmenter":
        # Imported here because it imports MONAI, which takes longer than a task on slices that are already stored.
        from fclseg.inference.segment import Segmenter
        from fclseg.networks.model_file import load_model

        return Segmenter(load_model(self.model, self.anatomy.name), self.device)

    def __call__(self, voxels: np.ndarray, volume: Volume) -> Centre | None:
        if self._found is None or self._found[0] != volume.image:
            self._found = (volume.image, self._segmenter.locate(voxels, volume))
        return self._found[1]
