"""The ``Volume`` record, and the ``Scan`` in which the readers of all anatomies collect volumes and problems."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np

from fclseg.anatomy.base import Anatomy, Tree
from fclseg.anatomy.nifti import Header, is_nifti, read_header, read_voxels
from fclseg.errors import DataError


@dataclass(frozen=True)
class Volume:
    """One 3D image: a file of its own, or one time point of a 4D file."""

    patient: str
    frame: int | None
    phase: str | None  # "ED" or "ES" where the data set says so
    image: Path
    label: Path | None
    spacing: tuple[float, float, float]  # mm, slice axis last
    anatomy: Anatomy
    site: str | None = None
    time_index: int | None = None  # index into the last axis of a 4D file


@dataclass
class Scan:
    """What a folder holds, judged by names and headers; problems are sentences that name their file."""

    root: Path
    anatomy: Anatomy
    volumes: list[Volume] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def problem(self, path: Path, sentence: str) -> None:
        self.problems.append(f"{path}: {sentence}")

    def header(self, path: Path) -> Header | None:
        """The file's header, or None with a problem noted."""
        try:
            return read_header(path)
        except DataError as error:
            self.problems.append(str(error))
            return None

    def add(self, patient: str, image: Path, label: Path | None, **fields: object) -> None:
        """Add a 3D image, with its label map if that fits; whatever does not is noted."""
        header, label_header = self.header(image), self.header(label) if label else None
        if header is not None and len(header.shape) != 3:
            self.problem(image, f"is {len(header.shape)}D where a 3D volume is expected; split it into its time points")
            header = None
        if label_header is not None and header is not None and label_header.shape != header.shape:
            shapes = f"{_times(label_header.shape)} but its image {image.name} has {_times(header.shape)}"
            self.problem(label, f"the label map has shape {shapes}; export it on the image's grid")
        if header is not None:
            self._append(patient=patient, image=image, label=label, spacing=header.spacing, **fields)

    def add_cine(self, patient: str, image: Path, skip: set[int], phases: dict[int, str], site: str | None) -> None:
        """Add the frames (counted from 1) of a 4D image as unlabelled volumes, except those in ``skip``."""
        header = self.header(image)
        if header is not None and len(header.shape) != 4:
            self.problem(
                image, f"is {len(header.shape)}D where the 4D cycle is expected; rename it or export the cycle"
            )
            return
        for index in range(header.shape[3] if header else 0):
            if index + 1 not in skip:
                frame = {"frame": index + 1, "phase": phases.get(index + 1), "time_index": index, "site": site}
                self._append(patient=patient, image=image, label=None, spacing=header.spacing, **frame)

    def _append(self, **fields: object) -> None:
        self.volumes.append(Volume(anatomy=self.anatomy, **fields))


def read_images(volumes: Iterable[Volume]) -> Iterator[tuple[Volume, np.ndarray]]:
    """Each volume with its voxels [X, Y, S]; a 4D file is decompressed once for the frames that follow each other."""
    for path, group in groupby(volumes, key=lambda volume: volume.image):
        voxels = read_voxels(path)
        for volume in group:
            yield volume, voxels if volume.time_index is None else voxels[..., volume.time_index]


def walk(root: Path, problems: list[str]) -> Tree:
    """The visible files of every visible folder below ``root``; folders that cannot be read or are empty are noted."""

    def unreadable(error: OSError) -> None:
        problems.append(f"{error.filename}: the folder cannot be read ({error.strerror}); change its permissions")

    tree: dict[Path, list[Path]] = {}
    visited: set[str] = set()
    for folder, folders, names in os.walk(root, onerror=unreadable, followlinks=True):
        if os.path.realpath(folder) in visited:  # a link that leads back up would never end
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
    """The name of a ``site-...`` folder between ``root`` and ``folder``, where data are stored by site."""
    return next((part for part in folder.relative_to(root).parts if part.startswith("site-")), None)


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape)
