"""The ``Volume`` record, and the ``Scan`` in which the readers of all anatomies collect volumes and problems."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from fclseg.anatomy.base import Anatomy, Tree
from fclseg.anatomy.geometry import fitting_storage
from fclseg.anatomy.nifti import Header, is_nifti, read_header, read_voxels
from fclseg.anatomy.orientation import AS_IS, Storage
from fclseg.errors import DataError


@dataclass(frozen=True)
class Volume:
    """One 3D image: a separate file, or one time point of a 4D file. Sizes are in our axis order."""

    patient: str
    frame: int | None
    phase: str | None  # "ED" or "ES" if the data set says so
    image: Path
    label: Path | None
    spacing: tuple[float, float, float]  # mm, slice axis last
    anatomy: Anatomy
    site: str | None = None
    time_index: int | None = None  # index into the last axis of a 4D file
    storage: Storage = AS_IS  # how the image's file stores its axes
    label_storage: Storage = AS_IS

    def read_label(self) -> np.ndarray:
        """The label map [X, Y, S] in our axis order, for volumes that have one."""
        if self.label is None:
            raise DataError(f"{self.image}: has no label map; add one next to it")
        return self.label_storage.inside(read_voxels(self.label))


@dataclass
class Scan:
    """The contents of a folder, judged by file names and headers. Problems are sentences that name their file."""

    root: Path
    anatomy: Anatomy
    volumes: list[Volume] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    training_only: set[str] = field(default_factory=set)  # problems that do not prevent segmentation

    def problem(self, path: Path, sentence: str, *, training_only: bool = False) -> None:
        self.problems.append(f"{path}: {sentence}")
        if training_only:
            self.training_only.add(self.problems[-1])

    def header(self, path: Path) -> Header | None:
        """The file's header, or None after recording the problem."""
        try:
            return read_header(path)
        except DataError as error:
            self.problems.append(str(error))
            return None

    def is_cine(self, path: Path) -> bool:
        """Whether a file has a time axis; False for a file that cannot be read."""
        try:
            return len(read_header(path).shape) == 4
        except DataError:
            return False

    def add(self, patient: str, image: Path, label: Path | None, **fields: object) -> None:
        """Add a 3D image, with its label map if that matches. Mismatches are recorded as problems."""
        header, label_header = self.header(image), self.header(label) if label else None
        if header is not None and len(header.shape) != 3:
            self.problem(image, f"is {len(header.shape)}D, but a 3D volume is expected; split it into its time points")
            header = None
        if header is None:
            return
        storage = header.storage(self.anatomy.slice_axis)
        label_storage = storage
        if label is not None and label_header is not None:
            try:
                label_storage = fitting_storage(label, label_header, image, header, self.anatomy.slice_axis)
            except DataError as error:
                self.problems.append(str(error))
                self.training_only.add(str(error))
        self._append(header, storage, patient=patient, image=image, label=label, label_storage=label_storage, **fields)

    def add_cine(self, patient: str, image: Path, skip: set[int], phases: dict[int, str], site: str | None) -> None:
        """Add the frames (counted from 1) of a 4D image as unlabelled volumes, except those in ``skip``."""
        header = self.header(image)
        if header is None:
            return
        if len(header.shape) != 4:
            self.problem(image, f"is {len(header.shape)}D, but the 4D cycle is expected; rename it or export the cycle")
            return
        for frame in sorted(frame for frame in phases if frame > header.shape[3] and frame not in skip):
            self.problem(
                image, f"has {header.shape[3]} frames, but {phases[frame]} is given as frame {frame}; correct one"
            )
        storage = header.storage(self.anatomy.slice_axis)
        for index in range(header.shape[3]):
            if index + 1 not in skip:
                place = {"frame": index + 1, "phase": phases.get(index + 1), "time_index": index, "site": site}
                self._append(header, storage, patient=patient, image=image, label=None, **place)

    def _append(self, header: Header, storage: Storage, **fields: Any) -> None:
        spacing = storage.spacing(header.spacing)
        self.volumes.append(Volume(anatomy=self.anatomy, storage=storage, spacing=spacing, **fields))


def read_images(volumes: Iterable[Volume]) -> Iterator[tuple[Volume, np.ndarray]]:
    """Each volume with its voxels [X, Y, S] in our axis order.

    A 4D file is decompressed once for consecutive frames.
    """
    for path, group in groupby(volumes, key=lambda volume: volume.image):
        voxels = without_nan_padding(read_voxels(path))
        for volume in group:
            yield volume, volume.storage.inside(voxels if volume.time_index is None else voxels[..., volume.time_index])


def without_nan_padding(voxels: np.ndarray) -> np.ndarray:
    """Some tools pad with NaN: it becomes the darkest value. An image with NaN in its middle stays as it is."""
    if voxels.dtype.kind != "f" or not (empty := np.isnan(voxels)).any():
        return voxels
    middle = tuple(slice(size // 4, size - size // 4) for size in voxels.shape[:2])
    return voxels if empty[middle].any() else np.where(empty, np.nanmin(voxels), voxels)


def walk(root: Path, problems: list[str]) -> Tree:
    """The visible files of every visible folder below ``root``. Unreadable and empty folders count as problems."""

    def unreadable(error: OSError) -> None:
        problems.append(f"{error.filename}: the folder cannot be read ({error.strerror}); change its permissions")

    tree: dict[Path, list[Path]] = {}
    visited: set[str] = set()
    for folder, folders, names in os.walk(root, onerror=unreadable, followlinks=True):
        if os.path.realpath(folder) in visited:  # following a link to a parent folder would never end
            folders.clear()
            continue
        visited.add(os.path.realpath(folder))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        names = sorted(name for name in names if not name.startswith("."))
        if not folders and not names and Path(folder) != root:
            problems.append(f"{folder}: the folder is empty; copy its files from the source or remove it")
        tree[Path(folder)] = [Path(folder, name) for name in names]
    return tree


def nifti_files(files: list[Path]) -> list[Path]:
    return [path for path in files if is_nifti(path)]


def site_of(folder: Path, root: Path) -> str | None:
    """The name of a ``site-...`` folder between ``root`` and ``folder``, if the data are stored by site."""
    return next((part for part in folder.relative_to(root).parts if part.startswith("site-")), None)
