"""Square windows of the network's size and pixel size: cut out of slices at any place, and put back.

A window is centred on a voxel. What it shows therefore depends only on the surroundings of that voxel, not on the size
of the image or the position of the heart in it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from fclseg.data.place import Centre

STEP = 16
REACH_MM = 84.0
"""What a network is shown of an image in each direction from the middle of the heart. Cropping an image outside of this
changes nothing."""


@dataclass(frozen=True)
class Windows:
    size: int  # pixels
    pixel_mm: float
    spacing: Sequence[float]  # voxel size of the slices, mm
    reach_mm: float = math.inf  # how far a window shows the image; farther out, its border is repeated

    @staticmethod
    def rounded(pixels: float) -> int:
        """The next size that a network can halve four times."""
        return STEP * math.ceil(pixels / STEP)

    @property
    def side_mm(self) -> float:
        return self.size * self.pixel_mm

    def cut(self, slices: torch.Tensor, centre: Centre) -> torch.Tensor:
        """Slices [n, X, Y] -> windows [n, 1, size, size]. Outside the image or its reach, the border is repeated.

        Networks hardly ever see a black edge in training, and cropping an image should not change its labels.
        """
        places = []
        for axis, shown in enumerate(self.box(centre, slices.shape[1:])):
            place = self._voxels(centre, axis).clamp(shown.start, shown.stop - 1)
            places.append(_relative(place, slices.shape[1 + axis]))
        return _sample(slices[:, None], places, "border")

    def inside(self, centre: Centre, shape: Sequence[int]) -> torch.Tensor:
        """Which pixels [size, size] of a window are inside the image."""
        rows, columns = (
            (place > -0.5) & (place < shape[axis] - 0.5)
            for axis, place in enumerate(self._voxels(centre, axis) for axis in (0, 1))
        )
        return rows[:, None] & columns

    def _voxels(self, centre: Centre, axis: int) -> torch.Tensor:
        """Where the pixels of a window are on the slices' grid."""
        return centre[axis] + (torch.arange(self.size) - (self.size - 1) / 2) * self.pixel_mm / self.spacing[axis]

    def paste(self, planes: torch.Tensor, centre: Centre, shape: Sequence[int]) -> torch.Tensor:
        """Planes [n, C, size, size] of a window -> [n, C, X, Y] on the slices' grid; zero outside the window."""
        places = []
        for axis in (0, 1):
            mm = (torch.arange(shape[axis]) - centre[axis]) * self.spacing[axis]
            places.append(_relative(mm / self.pixel_mm + (self.size - 1) / 2, self.size))
        return _sample(planes, places, "zeros")

    def voxel(self, centre: Centre, pixel: Sequence[float]) -> Centre:
        """The voxel of the slices that is nearest to a position in the window; it may lie outside of the image."""
        x, y = (
            round(centre[axis] + (float(pixel[axis]) - (self.size - 1) / 2) * self.pixel_mm / self.spacing[axis])
            for axis in (0, 1)
        )
        return x, y

    def box(self, centre: Centre, shape: Sequence[int]) -> tuple[slice, slice]:
        """The part of the image that the window shows."""
        half = [min(self.side_mm / 2, self.reach_mm) / self.spacing[axis] for axis in (0, 1)]
        x, y = (
            slice(max(0, round(centre[axis] - half[axis])), min(shape[axis], round(centre[axis] + half[axis]) + 1))
            for axis in (0, 1)
        )
        return x, y


def labelled_windows(
    windows: Windows, grey: np.ndarray, labels: np.ndarray, centre: Centre
) -> tuple[np.ndarray, np.ndarray]:
    """Grey values and labels [X, Y, S] -> images [S, size, size] as float16, and the label of most of each pixel."""
    images = windows.cut(slices_first(grey), centre)[:, 0].numpy().astype(np.float16)
    values = np.unique(labels)
    shares = torch.cat([windows.cut(slices_first(labels == value), centre) for value in values], dim=1)
    return images, values[shares.argmax(dim=1).numpy()].astype(np.uint8)


def slices_first(voxels: np.ndarray) -> torch.Tensor:
    """[X, Y, S] -> slices [S, X, Y]."""
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(voxels, -1, 0), dtype=np.float32))


def within(centre: Centre, shape: Sequence[int]) -> Centre:
    """The nearest voxel of an image [X, Y, ...]. A window can be larger than its image and find something beside it."""
    x, y = (min(max(centre[axis], 0), shape[axis] - 1) for axis in (0, 1))
    return x, y


def _relative(index: torch.Tensor, size: int) -> torch.Tensor:
    """Indices in the convention of ``grid_sample``: -1 and 1 are the outer borders of the first and the last pixel."""
    return 2 * (index + 0.5) / size - 1


def _sample(planes: torch.Tensor, places: list[torch.Tensor], outside: str) -> torch.Tensor:
    x, y = torch.meshgrid(*places, indexing="ij")
    grid = torch.stack([y, x], dim=-1).to(planes.dtype)[None].expand(len(planes), -1, -1, -1)
    return F.grid_sample(planes, grid, mode="bilinear", padding_mode=outside, align_corners=False)
