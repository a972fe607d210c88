"""Volumes and cycles as the page reads them: one line of JSON, then bytes, slice by slice, row by row.

In our axis order the first axis points to the right of the picture and the second down. A picture is stored row by row,
so a plane [X, Y] is sent transposed.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fclseg.anatomy.records import Volume, read_images
from fclseg.data.preprocess import unpadded

SHOWN_RANGE = (0.5, 99.7)
"""Percentiles that are shown as black and white. The contrast on the page is changed within them."""

KEPT = 8


def to_bytes(stack: np.ndarray) -> bytes:
    """[X, Y, n] -> n pictures, row by row."""
    return np.ascontiguousarray(stack.transpose(2, 1, 0)).tobytes()


def plane_of(body: bytes, shape: tuple[int, int]) -> np.ndarray:
    """The plane [X, Y] of one picture."""
    return np.frombuffer(body, np.uint8).reshape(shape[1], shape[0]).T.copy()


def message(header: dict[str, Any], *stacks: np.ndarray) -> bytes:
    return json.dumps(header).encode() + b"\n" + b"".join(to_bytes(stack) for stack in stacks)


class Grey:
    """Grey values of the last few volumes as bytes [X, Y, S]."""

    def __init__(self) -> None:
        self.volume = lru_cache(KEPT)(self._volume)  # can be asked by several threads

    def _volume(self, volume: Volume) -> np.ndarray:
        ((_, voxels),) = read_images([volume])
        return as_bytes(voxels, *shown_range(voxels))

    def cycle(self, volumes: Sequence[Volume], number: int) -> np.ndarray:
        """One slice of all frames, [X, Y, frames]; all frames have the same range of grey values."""
        planes = [voxels[:, :, min(number, voxels.shape[2] - 1)] for _, voxels in read_images(volumes)]
        planes = [plane for plane in planes if plane.shape == planes[0].shape]
        stack = np.stack(planes, axis=-1)
        return as_bytes(stack, *shown_range(stack))


def shown_range(voxels: np.ndarray) -> tuple[float, float]:
    """Percentiles of what is neither padding nor undefined."""
    inside = voxels[unpadded(voxels)]
    inside = inside[np.isfinite(inside)]
    if not inside.size:
        return 0.0, 1.0
    low, high = (float(value) for value in np.percentile(inside, SHOWN_RANGE))
    return (low, high) if high > low else (low, low + 1.0)


def as_bytes(voxels: np.ndarray, low: float, high: float) -> np.ndarray:
    grey = np.nan_to_num((voxels.astype(np.float32) - low) * (255.0 / (high - low)))
    return np.clip(np.round(grey), 0, 255).astype(np.uint8)
