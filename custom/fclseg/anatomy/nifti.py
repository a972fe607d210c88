"""Reading NIfTI files so that every way a file can be broken ends in one sentence that names it."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError, ImageDataError

from fclseg.errors import DataError

SUFFIXES = (".nii.gz", ".nii")
MM_PER_UNIT = {"meter": 1000.0, "mm": 1.0, "micron": 0.001, "unknown": 1.0}

_BROKEN = (OSError, EOFError, ValueError, TypeError, OverflowError, MemoryError, zlib.error)
_BROKEN += (HeaderDataError, ImageDataError, ImageFileError)


@dataclass(frozen=True)
class Header:
    shape: tuple[int, ...]
    spacing: tuple[float, float, float]  # of the three spatial axes, mm


def is_nifti(path: Path) -> bool:
    return path.name.endswith(SUFFIXES)


def stem(path: Path) -> str:
    """File name without ``.nii`` or ``.nii.gz``."""
    return path.name.removesuffix(".gz").removesuffix(".nii")


def read_header(path: Path) -> Header:
    """Shape and spacing, without reading voxels."""
    image = _load(path)
    shape = tuple(int(n) for n in image.shape)
    if len(shape) < 3 or min(shape) < 1:
        raise DataError(f"{path}: an image of shape {shape} is not a volume; export a stack of slices (3D)")
    try:
        unit = MM_PER_UNIT[image.header.get_xyzt_units()[0]]
    except KeyError:
        raise DataError(f"{path}: the header's unit of length is none that NIfTI knows; correct xyzt_units") from None
    spacing = tuple(unit * float(zoom) for zoom in image.header.get_zooms()[:3])
    if not all(np.isfinite(zoom) and zoom > 0 for zoom in spacing):
        raise DataError(f"{path}: the header's voxel size {spacing} must be positive; correct the header's pixdim")
    return Header(shape, spacing)


def read_voxels(path: Path) -> np.ndarray:
    """All voxels, with the header's scaling applied; integers stay integers where the header does not scale."""
    image = _load(path)
    if image.get_data_dtype().kind not in "iuf":
        raise DataError(
            f"{path}: voxels of type {image.get_data_dtype()} are not grey values; export integers or floats"
        )
    try:
        if not path.name.endswith(".gz"):
            return np.asanyarray(image.dataobj)
        with gzip.open(path) as stream:
            voxels = np.asanyarray(type(image).from_stream(stream).dataobj)
            while stream.read(1 << 20):  # only at its very end does gzip compare the checksum
                pass
            return voxels
    except _BROKEN as error:
        raise _sentence(path, error) from error


def _load(path: Path) -> nib.Nifti1Image:
    try:
        if path.name.endswith(".gz"):
            with open(path, "rb") as file:
                magic = file.read(2)
            if magic != b"\x1f\x8b":
                raise DataError(f"{path}: is not a gzip file though its name says so; export it again as .nii.gz")
        return nib.load(path)
    except _BROKEN as error:
        raise _sentence(path, error) from error


def _sentence(path: Path, error: Exception) -> DataError:
    if isinstance(error, PermissionError):
        return DataError(f"{path}: may not be read by this user; change the file's permissions")
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: is missing; copy it from the source again")
    return DataError(f"{path}: is truncated or not a NIfTI file; copy or export it again")
