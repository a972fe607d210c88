"""The images of one DICOM file: one image in a classic file, all frames in an enhanced file."""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fclseg.errors import DataError, FCLSegError

NEEDED = ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "Rows", "Columns", "SeriesInstanceUID")
HEADER_TAGS = (
    *NEEDED, "StudyInstanceUID", "FrameOfReferenceUID", "InstanceNumber", "TriggerTime", "TemporalPositionIdentifier",
    "SliceThickness", "PatientID", "PatientName", "PatientSize", "PatientWeight", "HeartRate", "SeriesDescription",
    "SeriesNumber", "NumberOfFrames", "Modality", "SOPClassUID", "RescaleSlope", "RescaleIntercept",
    "PhotometricInterpretation",
)  # fmt: skip
DARK_IS_HIGH = "MONOCHROME1"
NUMBERS = (
    "TriggerTime", "TemporalPositionIdentifier", "InstanceNumber", "SliceThickness", "RescaleSlope", "RescaleIntercept",
)  # fmt: skip
"""Tags that may be absent but must be numbers."""
NOT_SQUARE = 0.01
"""Rows and columns have unit length and are at right angles up to this."""
SHARED, PER_FRAME = "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"
FRAME_TAGS = (
    ("PlanePositionSequence", "ImagePositionPatient", "ImagePositionPatient"),
    ("PlaneOrientationSequence", "ImageOrientationPatient", "ImageOrientationPatient"),
    ("PixelMeasuresSequence", "PixelSpacing", "PixelSpacing"),
    ("PixelMeasuresSequence", "SliceThickness", "SliceThickness"),
    ("CardiacSynchronizationSequence", "NominalCardiacTriggerDelayTime", "TriggerTime"),
    ("FrameContentSequence", "TemporalPositionIndex", "TemporalPositionIdentifier"),
    ("PixelValueTransformationSequence", "RescaleSlope", "RescaleSlope"),
    ("PixelValueTransformationSequence", "RescaleIntercept", "RescaleIntercept"),
)
"""Where an enhanced file stores the top-level tags of a classic file: (sequence, name there, classic name)."""


@dataclass(frozen=True)
class Source:
    """Where an image comes from."""

    path: Path
    frame: int | None = None  # frame number in a file with many, counted from 0


def pydicom() -> Any:
    """The library, or an error that says how to install it."""
    try:
        import pydicom as library
    except ImportError:
        raise FCLSegError("reading DICOM needs pydicom: install it with pip install 'fclseg[dicom]'") from None
    return library


def headers(path: Path) -> list[tuple[Source, Any]]:
    """The images of a file with their classic tags. Reports, localisers without geometry and the like have none."""
    try:
        dataset = pydicom().dcmread(
            path, stop_before_pixels=True, specific_tags=[*HEADER_TAGS, SHARED, PER_FRAME], force=False
        )
        many = int(getattr(dataset, "NumberOfFrames", None) or 1) > 1
        found = _frames(path, dataset) if many else [(Source(path), dataset)]
        found = [(source, header) for source, header in found if not _absent(header)]
        possible = all(_possible(header) for _, header in found)
    except Exception:  # pydicom has no single error type for damaged files
        raise DataError(f"{path}: is a damaged DICOM file; copy or export it again") from None
    if not possible:
        raise DataError(f"{path}: its position, orientation, pixel spacing or time is impossible; export it again")
    if many and not found:
        raise DataError(f"{path}: contains frames without positions; export the series with one file per image")
    return found


def _absent(header: Any) -> list[str]:
    return [name for name in NEEDED if getattr(header, name, None) in (None, "")]


def _possible(header: Any) -> bool:
    """Whether the geometry can be that of an image. Reading it also shows values that are no numbers."""
    position, direction, spacing = (
        np.array([float(value) for value in getattr(header, name)])
        for name in ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing")
    )
    if (len(position), len(direction), len(spacing)) != (3, 6, 2) or int(header.Rows) < 1 or int(header.Columns) < 1:
        return False
    for name in NUMBERS:
        if (value := getattr(header, name, None)) not in (None, "") and not math.isfinite(float(value)):
            return False
    row, column = direction[:3], direction[3:]
    right_angle = np.allclose([row @ row, column @ column, row @ column], [1, 1, 0], atol=NOT_SQUARE)
    return bool(np.isfinite(position).all() and right_angle and (spacing > 0).all() and np.isfinite(spacing).all())


def _frames(path: Path, dataset: Any) -> list[tuple[Source, Any]]:
    shared = getattr(dataset, SHARED, None)
    found = []
    for number, own in enumerate(getattr(dataset, PER_FRAME, None) or ()):
        header = pydicom().Dataset()
        for name in HEADER_TAGS:
            if (value := getattr(dataset, name, None)) is not None:
                setattr(header, name, value)
        for sequence, name, classic in FRAME_TAGS:
            group = getattr(own, sequence, None) or (shared and getattr(shared[0], sequence, None))
            if group and (value := getattr(group[0], name, None)) is not None:
                setattr(header, classic, value)
        header.InstanceNumber = number + 1
        found.append((Source(path, number), header))
    return found


def pixels(source: Source, header: Any) -> np.ndarray:
    """Pixels [column, row], with the rescaling of the header applied. High values are always bright."""
    plane = _array(source.path)
    plane = plane if source.frame is None else plane[source.frame]
    if plane.ndim != 2:
        raise DataError(f"{source.path}: is not a greyscale image; export the original series")
    slope, intercept = float(getattr(header, "RescaleSlope", 1)), float(getattr(header, "RescaleIntercept", 0))
    if getattr(header, "PhotometricInterpretation", "") == DARK_IS_HIGH:
        slope, intercept = -slope, -intercept
    if (slope, intercept) != (1.0, 0.0):
        return (plane.astype(np.float32) * slope + intercept).T
    return plane.astype(np.int32 if plane.dtype.itemsize > 2 or plane.dtype.kind == "u" else np.int16).T


@lru_cache(maxsize=1)
def _array(path: Path) -> np.ndarray:
    """All pixels of a file, kept for the next frame of the same file."""
    try:
        return pydicom().dcmread(path).pixel_array
    except Exception as error:
        raise DataError(f"{path}: its pixels cannot be read ({error}); export it uncompressed") from None
