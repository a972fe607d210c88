"""A cine as a NIfTI image."""

import nibabel as nib
import numpy as np

from fclseg.dicom.frames import pixels
from fclseg.dicom.phases import mixes
from fclseg.dicom.series import ENOUGH_PHASES, Cine
from fclseg.errors import DataError


def to_nifti(cine: Cine, remarks: list[str] | None = None) -> nib.Nifti1Image:
    """Voxels [X, Y, S, T] (3D for a single phase) with the affine in the scanner's coordinates.

    ``remarks`` gets a sentence for each image that was interpolated because its pixels cannot be read.
    """
    column, row, between = cine.spacing
    direction = np.array([float(value) for value in cine.first.ImageOrientationPatient])
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1] = direction[:3] * column, direction[3:] * row
    affine[:3, 2] = np.array(cine.normal) * between
    affine[:3, 3] = [float(value) for value in cine.first.ImagePositionPatient]
    affine[:2] *= -1  # DICOM axes point to the left and back, NIfTI axes to the right and front
    slices = [_slice(cine, position, [] if remarks is None else remarks) for position in range(len(cine.files))]
    voxels = np.stack(slices, axis=2)
    voxels = voxels[..., 0] if voxels.shape[3] == 1 else voxels
    image = nib.Nifti1Image(voxels, affine)
    image.header.set_xyzt_units("mm", "sec")
    image.set_qform(affine, code=1)
    image.set_sform(affine, code=1)
    if voxels.ndim == 4:
        image.header.set_zooms((column, row, between, cine.frame_seconds or 0.0))
    return image


def _slice(cine: Cine, position: int, remarks: list[str]) -> np.ndarray:
    """Pixels [X, Y, T] of one slice at the phases of the cine."""
    planes, headers, problems = [], [], []
    for source, header in zip(cine.files[position], cine.headers[position], strict=True):
        try:
            planes.append(pixels(source, header))
            headers.append(header)
        except DataError as error:
            problems.append(error)
    if len(planes) < ENOUGH_PHASES * cine.phases:
        raise problems[0]
    remarks += [f"{error} (interpolated from the phases beside it)" for error in problems]
    if len(planes) == cine.phases:
        return np.stack(planes, axis=-1)
    mixed = [
        (1 - weight) * planes[before] + weight * planes[after]
        for before, after, weight in mixes(headers, cine.complete)
    ]
    stack = np.stack(mixed, axis=-1)
    return stack.astype(np.float32) if planes[0].dtype.kind == "f" else np.rint(stack).astype(planes[0].dtype)
