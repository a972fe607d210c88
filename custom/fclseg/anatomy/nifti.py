"""Reads NIfTI files. Every broken file gives a one-sentence error that names the file.

nibabel is imported only when a file is opened, because many tasks and commands need only an anatomy's structures.
"""

import gzip
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fclseg.anatomy.orientation import Affine, Storage, find_storage
from fclseg.errors import DataError

if TYPE_CHECKING:
    import nibabel as nib

SUFFIXES = (".nii.gz", ".nii")
MM_PER_UNIT = {"meter": 1000.0, "mm": 1.0, "micron": 0.001, "unknown": 1.0}

_DAMAGED = (EOFError, ValueError, TypeError, OverflowError, MemoryError, zlib.error)

VOXEL_MM = (0.05, 60.0)
LARGEST_MM = 2000.0
"""Limits in mm for a voxel and for an image of a body. Beyond them, the unit of length or the voxel size is wrong."""


@dataclass(frozen=True)
class Header:
    """A file's geometry, in the file's axis order."""

    shape: tuple[int, ...]
    spacing: tuple[float, float, float]  # of the three spatial axes, mm
    affine: Affine | None  # in mm; None if the header has none

    def storage(self, slice_axis: int) -> Storage:
        return find_storage(self.affine, self.shape, self.spacing, slice_axis)


def is_nifti(path: Path) -> bool:
    return path.name.endswith(SUFFIXES)


def stem(path: Path) -> str:
    """File name without ``.nii`` or ``.nii.gz``."""
    return path.name.removesuffix(".gz").removesuffix(".nii")


def read_header(path: Path) -> Header:
    """Shape, voxel size and affine, without reading voxels. Raises if this cannot be the geometry of a body."""
    image = _load(path)
    shape = tuple(int(n) for n in image.shape)
    if len(shape) < 3 or min(shape) < 1:
        raise DataError(f"{path}: an image of shape {shape} is not a volume; export a stack of slices (3D)")
    try:
        unit = MM_PER_UNIT[image.header.get_xyzt_units()[0]]
    except KeyError:
        raise DataError(f"{path}: the header's unit of length is unknown to NIfTI; correct xyzt_units") from None
    stored = _stored_pixdim(path, image)
    if not all(np.isfinite(size) and size > 0 for size in stored):
        sizes = ", ".join(f"{size:g}" for size in stored)
        raise DataError(f"{path}: the header's voxel size {sizes} must be positive; correct the header's pixdim")
    slope = float(getattr(image.dataobj, "slope", 1.0))
    if slope < 0:
        raise DataError(f"{path}: the header's slope {slope:g} inverts the grey values; export it again")
    x, y, z = (unit * size for size in stored)
    header = Header(shape, (x, y, z), _affine(path, image, stored, unit))
    _check_sizes(path, header)
    return header


def _stored_pixdim(path: Path, image: "nib.Nifti1Image") -> list[float]:
    """The voxel sizes stored in the file, read directly because nibabel replaces 0 and negative values by 1."""
    try:
        with gzip.open(path) if path.name.endswith(".gz") else open(path, "rb") as file:
            raw = type(image.header).from_fileobj(file, check=False)
        return [float(size) for size in raw["pixdim"][1:4]]
    except _broken() as error:
        raise _sentence(path, error) from error


def _affine(path: Path, image: "nib.Nifti1Image", pixdim: list[float], unit: float) -> Affine | None:
    if int(image.header["qform_code"]) == 0 and int(image.header["sform_code"]) == 0:
        return None
    matrix = np.asarray(image.affine, dtype=float)[:3]
    lengths = np.linalg.norm(matrix[:, :3], axis=0)
    if not np.isfinite(matrix).all() or not np.allclose(lengths, pixdim, rtol=0.02):
        raise DataError(
            f"{path}: the header's affine and pixdim have different voxel sizes; export it again with one of them"
        )
    directions = matrix[:, :3] / lengths
    if np.abs(directions.T @ directions - np.eye(3)).max() > 0.05:
        raise DataError(f"{path}: the axes in the header's affine are not at right angles; export it without shear")
    return tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in (unit * matrix).tolist())


def _check_sizes(path: Path, header: Header) -> None:
    low, high = VOXEL_MM
    for size, count in zip(header.spacing, header.shape, strict=False):
        if not low <= size <= high or size * count > LARGEST_MM:
            raise DataError(
                f"{path}: a voxel size of {size:g} mm along {count} voxels cannot be a body; correct the header's "
                "pixdim or its unit of length"
            )


def read_voxels(path: Path) -> np.ndarray:
    """All voxels, with the header's scaling applied. Integers stay integers if the header does not scale."""
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
            while stream.read(1 << 20):  # gzip compares the checksum only at the very end
                pass
            return voxels
    except _broken() as error:
        raise _sentence(path, error) from error


def _load(path: Path) -> "nib.Nifti1Image":
    import nibabel as nib

    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a named pipe would wait forever
            raise DataError(f"{path}: is not a regular file; copy the image itself there")
        if path.name.endswith(".gz"):
            with open(path, "rb") as file:
                magic = file.read(2)
            if magic != b"\x1f\x8b":
                raise DataError(f"{path}: is not a gzip file despite its name; export it again as .nii.gz")
        return nib.load(path)
    except _broken() as error:
        raise _sentence(path, error) from error


def _broken() -> tuple[type[Exception], ...]:
    """All errors that reading a damaged file can raise."""
    from nibabel.filebasedimages import ImageFileError
    from nibabel.spatialimages import HeaderDataError, ImageDataError

    return OSError, *_DAMAGED, HeaderDataError, ImageDataError, ImageFileError


def _sentence(path: Path, error: Exception) -> DataError:
    if isinstance(error, PermissionError):
        return DataError(f"{path}: this user may not read it; change the file's permissions")
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: is missing; copy it from the source again")
    return DataError(f"{path}: is truncated or not a NIfTI file; copy or export it again")
