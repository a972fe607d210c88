"""Checks that a label map matches the geometry of its image."""

from pathlib import Path

import numpy as np

from fclseg.anatomy.nifti import Header
from fclseg.anatomy.orientation import Storage
from fclseg.errors import DataError

TOLERANCE = 0.5
"""Tolerance in voxels, because tools round affines differently."""


def fitting_storage(label: Path, header: Header, image: Path, image_header: Header, slice_axis: int) -> Storage:
    """How the label map stores its axes. Raises if the label map is not on the image's grid.

    Shape and affine are compared in our axis order, so the two files may store their axes in different orders. If one
    of them has no affine, only shapes can be compared.
    """
    mine, theirs = header.storage(slice_axis), image_header.storage(slice_axis)
    if header.affine is None or image_header.affine is None:
        mine = theirs
    shapes = [[one.shape[axis] for axis in how.axes] for one, how in ((header, mine), (image_header, theirs))]
    if len(header.shape) != 3 or shapes[0] != shapes[1]:
        both = f"{_times(header.shape)} but its image {image.name} has {_times(image_header.shape)}"
        raise DataError(f"{label}: the label map has shape {both}; export it on the image's grid")
    if header.affine is not None and image_header.affine is not None:
        difference = mine.affine(header.affine, header.shape) - theirs.affine(image_header.affine, image_header.shape)
        corners = np.array([[x, y, z, 1] for x in (0, 1) for y in (0, 1) for z in (0, 1)]) * [*shapes[0], 1]
        off_mm = float(np.linalg.norm(difference[:3] @ corners.T, axis=0).max())
        if off_mm > TOLERANCE * min(image_header.spacing):
            raise DataError(
                f"{label}: by its affine, the label map is up to {off_mm:.1f} mm off its image {image.name}; export "
                "it on the image's grid"
            )
    return mine


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape)
