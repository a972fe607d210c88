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
    "PhotometricInterpretation", "SOPInstanceUID", "PatientSex", "PatientAge", "PatientBirthDate", "StudyDate",
    "AcquisitionNumber", "AcquisitionTime", "SeriesTime", "ContentTime",
)  # fmt: skip
MR_IMAGES = ("1.2.840.10008.5.1.4.1.1.4", "1.2.840.10008.5.1.4.1.1.4.1")
"""SOP classes: MR Image Storage and Enhanced MR Image Storage."""
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
            path, stop_before_pixels=True, specific_tags=[*HEADER_TAGS, SHARED, PER_FRAME], force=True
        )
        cut = _is_cut(dataset)
        many = int(getattr(dataset, "NumberOfFrames", None) or 1) > 1
        found = _frames(path, dataset) if many else [(Source(path), dataset)]
        found = [(source, header) for source, header in found if not _absent(header)]
        possible = all(_possible(header) for _, header in found)
    except Exception:  # pydicom has no single error type for damaged files
        raise DataError(f"{path}: is a damaged DICOM file; copy or export it again") from None
    if cut:
        raise DataError(f"{path}: is an MR image that ends in its header; copy or export it again")
    if not possible:
        raise DataError(f"{path}: its position, orientation, pixel spacing or time is impossible; export it again")
    if many and not found:
        raise DataError(f"{path}: contains frames without positions; export the series with one file per image")
    return found


def _is_cut(dataset: Any) -> bool:
    """Whether a file that calls itself an MR image ends before it describes its pixels."""
    kind = str(getattr(dataset, "SOPClassUID", "") or getattr(dataset.file_meta, "MediaStorageSOPClassUID", ""))
    return kind in MR_IMAGES and "Rows" not in dataset and "PhotometricInterpretation" not in dataset


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


def whole_dataset(path: Path) -> Any:
    """A file with its pixels. Without meta information, the way in which it could be read is its encoding."""
    dataset = pydicom().dcmread(path, force=True)
    if getattr(dataset.file_meta, "TransferSyntaxUID", None) is None:
        syntaxes = pydicom().uid
        implicit = dataset.original_encoding[0]
        dataset.file_meta.TransferSyntaxUID = (
            syntaxes.ImplicitVRLittleEndian if implicit else syntaxes.ExplicitVRLittleEndian
        )
    return dataset


@lru_cache(maxsize=1)
def _array(path: Path) -> np.ndarray:
    """All pixels of a file, kept for the next frame of the same file."""
    try:
        dataset = whole_dataset(path)
        if "PixelData" not in dataset:
            raise DataError(f"{path}: has no pixels; copy or export it again")
        return dataset.pixel_array
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path}: {_why(path, error)}") from None


def _why(path: Path, error: Exception) -> str:
    """Why pixels cannot be read, and what helps: a decoder that is not installed, or a damaged file."""
    syntax = getattr(pydicom().dcmread(path, force=True, stop_before_pixels=True).file_meta, "TransferSyntaxUID", None)
    reason = " ".join(str(error).split())
    if syntax is not None and "missing dependencies" in reason:
        return f"is compressed ({syntax.name}), and no decoder is installed: pip install 'fclseg[dicom]'"
    return f"its pixels cannot be read ({reason[:160]}); copy or export it again"
