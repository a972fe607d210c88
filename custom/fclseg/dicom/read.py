"""Reads cine series from a folder of DICOM files."""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from fclseg.dicom.series import Cine, arrange
from fclseg.errors import DataError, FCLSegError

NEEDED = ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "Rows", "Columns", "SeriesInstanceUID")
HEADER_TAGS = (
    *NEEDED, "StudyInstanceUID", "FrameOfReferenceUID", "InstanceNumber", "TriggerTime", "TemporalPositionIdentifier",
    "SliceThickness", "PatientID", "PatientName", "PatientSize", "PatientWeight", "HeartRate", "SeriesDescription",
    "SeriesNumber", "NumberOfFrames", "Modality", "SOPClassUID",
)  # fmt: skip


@dataclass
class Found:
    """The series of a folder, and one sentence for each series that cannot be read."""

    series: list[Cine] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def pydicom() -> Any:
    """The library, or an error that says how to install it."""
    try:
        import pydicom as library
    except ImportError:
        raise FCLSegError("reading DICOM needs pydicom: install it with pip install 'fclseg[dicom]'") from None
    return library


def is_dicom(path: Path) -> bool:
    """Recognised by the four letters after the preamble."""
    try:
        with open(path, "rb") as file:
            return path.is_file() and file.read(132)[128:] == b"DICM"
    except OSError:
        return False


def holds_dicom(folder: Path) -> bool:
    return any(is_dicom(path) for path in _files(folder))


def find_series(folder: Path) -> Found:
    """All cine series below a folder. Private tags are never read."""
    groups: dict[str, list[tuple[Path, Any]]] = defaultdict(list)
    found = Found()
    for path in _files(folder):
        if is_dicom(path) and (header := _header(path, found.problems)) is not None:
            groups[str(header.SeriesInstanceUID)].append((path, header))
    for name, items in _with_single_slices_joined(groups).items():
        try:
            found.series.append(arrange(name, items))
        except DataError as error:
            found.problems.append(str(error))
    if not found.series and not found.problems:
        found.problems.append(f"{folder}: contains no DICOM image series; give the folder that the scanner exported")
    return found


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (path for path in (Path(place, name) for name in sorted(names)) if path.is_file())


def _header(path: Path, problems: list[str]) -> Any | None:
    library = pydicom()
    try:
        header = library.dcmread(path, stop_before_pixels=True, specific_tags=list(HEADER_TAGS))
    except Exception:  # pydicom has no single error type for damaged files
        problems.append(f"{path}: is a damaged DICOM file; copy or export it again")
        return None
    if int(getattr(header, "NumberOfFrames", None) or 1) > 1:
        problems.append(f"{path}: contains many frames in one file; export the series with one file per image")
        return None
    absent = [name for name in NEEDED if getattr(header, name, None) in (None, "")]
    if absent:  # reports, localisers without geometry and the like
        return None
    return header


def _with_single_slices_joined(groups: dict[str, list[tuple[Path, Any]]]) -> dict[str, list[tuple[Path, Any]]]:
    """Some scanners store each slice of a stack as a separate series. Parallel series of one study belong together."""
    joined: dict[str, list[tuple[Path, Any]]] = {}
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
    voxels = np.stack([np.stack([_pixels(path) for path in phases], axis=-1) for phases in cine.files], axis=2)
    voxels = voxels[..., 0] if voxels.shape[3] == 1 else voxels
    image = nib.Nifti1Image(voxels, affine)
    image.header.set_xyzt_units("mm", "sec")
    image.set_qform(affine, code=1)
    image.set_sform(affine, code=1)
    if voxels.ndim == 4:
        image.header.set_zooms((column, row, between, cine.frame_seconds or 0.0))
    return image


def _pixels(path: Path) -> np.ndarray:
    """Pixels [column, row], with the rescaling of the header applied."""
    library = pydicom()
    try:
        dataset = library.dcmread(path)
        pixels = dataset.pixel_array
    except Exception as error:
        raise DataError(f"{path}: its pixels cannot be read ({error}); export it uncompressed") from None
    if pixels.ndim != 2:
        raise DataError(f"{path}: is not a greyscale image; export the original series")
    slope, intercept = float(getattr(dataset, "RescaleSlope", 1)), float(getattr(dataset, "RescaleIntercept", 0))
    if (slope, intercept) != (1.0, 0.0):
        return (pixels.astype(np.float32) * slope + intercept).T
    return pixels.astype(np.int32 if pixels.dtype.itemsize > 2 or pixels.dtype.kind == "u" else np.int16).T
