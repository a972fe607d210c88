"""Converts between the axis order of a file and ours: one orientation inside, the file's own outside.

Ours is the one in which ACDC stores its images: the first axis points to the right of the picture, the second down,
and the third from base to apex. The affine tells which stored axis is which. Nothing is resampled: axes are only
swapped and flipped, so an oblique stack stays a stack of the slices that were scanned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

Affine = tuple[tuple[float, float, float, float], ...]
"""The upper three rows: voxel indices to mm, x to the right, y to the front, z to the head of the patient."""

PICTURE_RIGHT = np.array([-1.0, -0.5, 0.0])
PICTURE_DOWN = np.array([0.0, -0.5, -1.0])
"""How scanners show slices: left and posterior at the right, inferior and posterior below. For axial slices this means
left-right and front-back; for double-oblique ones it is the usual short-axis view, with the right ventricle on the
left."""

BASE_TO_APEX = np.array([-0.7, 0.5, -0.5])
"""The long axis of the left ventricle in the body: it points to the left, to the front and down."""

NOMINAL_DEGREES = 25.0
"""No short-axis stack is this close to axial. Such an affine was invented when the file was converted, as in ACDC. Its
third axis then follows ACDC's convention: base first, labelled "towards the head"."""

THICK = 1.4
"""Slices are at least this many times thicker than pixels are wide; otherwise the volume is (nearly) isotropic."""


@dataclass(frozen=True)
class Storage:
    """How a file stores its axes: our axis i is the file's axis ``axes[i]``, reversed if ``flips[i]``."""

    axes: tuple[int, int, int] = (0, 1, 2)
    flips: tuple[bool, bool, bool] = (False, False, False)
    codes: str = "?"  # directions in which the file's axes grow, such as LPS
    remark: str | None = None  # what the affine does not determine

    def inside(self, voxels: np.ndarray) -> np.ndarray:
        """From the file's order to ours. Further axes (time) stay last."""
        moved = voxels.transpose(*self.axes, *range(3, voxels.ndim))
        return np.flip(moved, tuple(axis for axis in range(3) if self.flips[axis]))

    def outside(self, voxels: np.ndarray) -> np.ndarray:
        """From our order back to the file's."""
        flipped = np.flip(voxels, tuple(axis for axis in range(3) if self.flips[axis]))
        return flipped.transpose(*np.argsort(self.axes), *range(3, voxels.ndim))

    def spacing(self, stored: Sequence[float]) -> tuple[float, float, float]:
        x, y, z = (float(stored[axis]) for axis in self.axes)
        return x, y, z

    def affine(self, stored: Affine, shape: Sequence[int]) -> np.ndarray:
        """The affine [4, 4] of the voxels in our axis order."""
        index = np.zeros((4, 4))
        index[3, 3] = 1.0
        for ours, (axis, flip) in enumerate(zip(self.axes, self.flips, strict=True)):
            index[axis, ours] = -1.0 if flip else 1.0
            index[axis, 3] = shape[axis] - 1.0 if flip else 0.0
        return np.vstack([np.array(stored), [0.0, 0.0, 0.0, 1.0]]) @ index


AS_IS = Storage()
"""Axes that are already in our order."""


def find_storage(affine: Affine | None, shape: Sequence[int], spacing: Sequence[float], slice_axis: int) -> Storage:
    """The storage of a file with this geometry. Without an affine, the axes are assumed to have our directions.

    ``slice_axis`` is the anatomy's default, for volumes whose affine and voxel sizes do not determine it.
    """
    if affine is None:
        slices = _thick_axis(spacing)
        slices = slice_axis if slices is None else slices
        x, y = (axis for axis in range(3) if axis != slices)
        return Storage((x, y, slices), remark="the header does not give the orientation of the image in the body")
    directions = np.array(affine)[:, :3] / np.linalg.norm(np.array(affine)[:, :3], axis=0)
    thick = _thick_axis(spacing)
    slices = int(np.abs(directions[2]).argmax()) if thick is None else thick
    (x, flip_x), (y, flip_y) = _in_plane(directions, slices)
    along, remark = _base_to_apex(directions[:, slices])
    return Storage((x, y, slices), (flip_x, flip_y, along < 0), _codes(directions), remark)


def _thick_axis(spacing: Sequence[float]) -> int | None:
    """The axis along which voxels are clearly longest, if there is one."""
    order = np.argsort(spacing)
    return int(order[2]) if spacing[order[2]] >= THICK * spacing[order[1]] else None


def _in_plane(directions: np.ndarray, slices: int) -> tuple[tuple[int, bool], tuple[int, bool]]:
    """Of the eight ways to show a slice, the one that is closest to how scanners show it."""
    others = [axis for axis in range(3) if axis != slices]
    ways = [
        (float(fx * directions[:, x] @ PICTURE_RIGHT + fy * directions[:, y] @ PICTURE_DOWN), (x, fx < 0), (y, fy < 0))
        for x, y in permutations(others)
        for fx, fy in product((1, -1), repeat=2)
    ]
    _, first, second = max(ways, key=lambda way: way[0])
    return first, second


def _base_to_apex(direction: np.ndarray) -> tuple[float, str | None]:
    """Positive if the stored slices run from base to apex."""
    if abs(direction[2]) > np.cos(np.deg2rad(NOMINAL_DEGREES)):
        return float(direction[2]), None
    along = float(direction @ BASE_TO_APEX)
    if abs(along) < 0.2:
        return float(direction[np.abs(direction).argmax()]), "the affine does not distinguish base from apex"
    return along, None


def _codes(directions: np.ndarray) -> str:
    """The nearest direction of each axis, as letters. Two axes of an oblique stack may have the same letter."""
    nearest = np.abs(directions).argmax(axis=0)
    return "".join(("LR", "PA", "IS")[row][int(directions[row, axis] > 0)] for axis, row in enumerate(nearest.tolist()))
