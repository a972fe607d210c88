"""Finds the label maps of a folder of results that belong to labelled images, and reads them on the images' grid."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fclseg.anatomy.geometry import fitting_storage
from fclseg.anatomy.nifti import is_nifti, read_header, read_voxels, stem
from fclseg.anatomy.records import Volume
from fclseg.errors import DataError

ENDINGS = ("_seg", "_pred", "")
"""Of a label map's name after the name of its image; the first is that of ``fclseg segment``."""


@dataclass(frozen=True)
class LabelMap:
    """The label map of a volume: a 3D file, or one time point of a 4D file."""

    path: Path
    time_index: int | None = None

    def read(self, volume: Volume) -> np.ndarray:
        """Labels [X, Y, S] in our axis order. Raises if they are not on the image's grid."""
        header = read_header(self.path)
        if self.time_index is not None and len(header.shape) != 4:
            raise DataError(f"{self.path}: is not the label map of a whole cycle; segment the cycle again")
        image = read_header(volume.image)
        flat, grid = (replace(one, shape=one.shape[:3]) for one in (header, image))
        storage = fitting_storage(self.path, flat, volume.image, grid, volume.anatomy.slice_axis)
        voxels = read_voxels(self.path)
        labels = storage.inside(voxels if self.time_index is None else voxels[..., self.time_index])
        if not np.isin(np.unique(labels), range(volume.anatomy.classes)).all():
            allowed = f"0 and {volume.anatomy.describe_values()}"
            raise DataError(f"{self.path}: has other values than {allowed}; give label maps, not probabilities")
        return labels.astype(np.uint8)


class Results:
    """The label maps below a folder, by the name of their image."""

    def __init__(self, folder: Path):
        self.folder = folder
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{folder}: is a file; give the folder of results")
        self.files: dict[str, Path] = {}
        for path in sorted(folder.rglob("*.nii*")):
            if is_nifti(path):
                self.files.setdefault(stem(path), path)

    def find(self, volume: Volume) -> LabelMap | None:
        """The result of a volume, or None."""
        for name, time_index in _names(volume):
            if (path := self.files.get(name)) is not None and path.resolve() != volume.image.resolve():
                return LabelMap(path, time_index)
        return None


def _names(volume: Volume) -> Iterator[tuple[str, int | None]]:
    """Possible names of a volume's label map, the likeliest first: its own, its phase, and its frame of the cycle."""
    image, patient = stem(volume.image), volume.patient
    for ending in ENDINGS:
        for name in (image, f"{volume.image.parent.name}_{image}", f"{volume.phase}_{image}"):
            yield f"{name}{ending}", volume.time_index
    if volume.phase is not None:
        yield f"{patient}_4d_{volume.phase}_seg", None
    if volume.frame is not None:
        yield f"{patient}_4d_seg", volume.frame - 1
