"""Reads cine series from a folder of DICOM files."""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from fclseg.dicom.frames import Source, headers, pixels
from fclseg.dicom.series import Cine, arrange
from fclseg.errors import DataError

FEWEST_SLICES = 4
"""A short-axis stack of a heart has at least this many slices."""


@dataclass
class Found:
    """The series of a folder, and one sentence for each series that cannot be read or is not wanted."""

    series: list[Cine] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def is_dicom(path: Path) -> bool:
    """Recognised by the four letters after the preamble."""
    try:
        with open(path, "rb") as file:
            return path.is_file() and file.read(132)[128:] == b"DICM"
    except OSError:
        return False


def holds_dicom(folder: Path) -> bool:
    return any(is_dicom(path) for path in files_of(folder))


def find_series(folder: Path) -> Found:
    """All cine series below a folder. Private tags are never read."""
    groups: dict[str, list[tuple[Source, Any]]] = defaultdict(list)
    found = Found()
    for path in files_of(folder):
        if not is_dicom(path):
            continue
        try:
            for source, header in headers(path):
                groups[str(header.SeriesInstanceUID)].append((source, header))
        except DataError as error:
            found.problems.append(str(error))
    exams: dict[tuple[str, str], list[tuple[str, list[tuple[Source, Any]]]]] = defaultdict(list)
    for name, items in _with_single_slices_joined(groups).items():
        exams[_exam(items[0][1])].append((name, items))
    for series in exams.values():
        _add_exam(found, series)
    if not found.series and not found.problems:
        found.problems.append(f"{folder}: contains no DICOM image series; give the folder that the scanner exported")
    return found


def _exam(header: Any) -> tuple[str, str]:
    return str(getattr(header, "PatientID", "")), str(getattr(header, "StudyInstanceUID", ""))


def _add_exam(found: Found, series: list[tuple[str, list[tuple[Source, Any]]]]) -> None:
    """Add the short-axis cines of one exam. Without one, all of its series are added.

    Exams also have localisers, long-axis views and maps. A short-axis cine is what has many slices and many phases.
    """
    arranged, problems = [], []
    for name, items in series:
        try:
            arranged.append(arrange(name, items))
        except DataError as error:
            problems.append(str(error))
    cines = [one for one in arranged if len(one.files) >= FEWEST_SLICES and len(one.files[0]) > 1]
    found.series += cines or arranged
    if cines:
        found.left_out += [_describe(one) for one in arranged if one not in cines] + problems
    else:
        found.problems += problems


def _describe(cine: Cine) -> str:
    name = getattr(cine.first, "SeriesDescription", None) or cine.first.SeriesInstanceUID
    size = f"{len(cine.files)} slices, {len(cine.files[0])} phases"
    return f"{cine.files[0][0].path.parent}: series {name} ({size}) is not a short-axis cine"


def files_of(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (path for path in (Path(place, name) for name in sorted(names)) if path.is_file())


def _with_single_slices_joined(groups: dict[str, list[tuple[Source, Any]]]) -> dict[str, list[tuple[Source, Any]]]:
    """Some scanners store each slice of a stack as a separate series. Parallel series of one study belong together."""
    joined: dict[str, list[tuple[Source, Any]]] = {}
    for name, items in groups.items():
        places = {tuple(round(float(value), 1) for value in header.ImagePositionPatient) for _, header in items}
        first = items[0][1]
        key = name
        if len(places) == 1:
            direction = tuple(round(float(value), 3) for value in first.ImageOrientationPatient)
            study, frame = getattr(first, "StudyInstanceUID", ""), getattr(first, "FrameOfReferenceUID", "")
            key = repr((str(study), str(frame), direction, int(first.Rows), int(first.Columns), len(items)))
        joined.setdefault(key, []).extend(items)
    return joined


def to_nifti(cine: Cine) -> nib.Nifti1Image:
    """Voxels [X, Y, S, T] (3D for a single phase) with the affine in the scanner's coordinates."""
    column, row, between = cine.spacing
    direction = np.array([float(value) for value in cine.first.ImageOrientationPatient])
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1] = direction[:3] * column, direction[3:] * row
    affine[:3, 2] = np.array(cine.normal) * between
    affine[:3, 3] = [float(value) for value in cine.first.ImagePositionPatient]
    affine[:2] *= -1  # DICOM axes point to the left and back, NIfTI axes to the right and front
    slices = [
        np.stack([pixels(*image) for image in zip(*phases, strict=True)], axis=-1)
        for phases in zip(cine.files, cine.headers, strict=True)
    ]
    voxels = np.stack(slices, axis=2)
    voxels = voxels[..., 0] if voxels.shape[3] == 1 else voxels
    image = nib.Nifti1Image(voxels, affine)
    image.header.set_xyzt_units("mm", "sec")
    image.set_qform(affine, code=1)
    image.set_sform(affine, code=1)
    if voxels.ndim == 4:
        image.header.set_zooms((column, row, between, cine.frame_seconds or 0.0))
    return image
