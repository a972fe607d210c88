"""Find the heart in an image before it is segmented.

A few slices through the middle of the stack are predicted once, as a whole. The largest connected components are
candidates. For each, a window is moved to the centre of what is found in it until it stays, and the heart is where the
network is then surest of all structures together (``segment.py``): the largest component alone can be a lung.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import ndimage

from fclseg.data.place import Centre
from fclseg.data.windows import Windows, within

SEARCHED = 3
"""Slices of a stack in which the heart is searched."""

CANDIDATES, LEAST_AMOUNT = 3, 0.1
"""At most so many components are looked at, and none that is smaller than this part of the largest."""

Predict = Callable[[torch.Tensor], torch.Tensor]
"""Windows [n, 1, H, W] -> class probabilities [n, C, H, W]."""


@dataclass(frozen=True)
class FoundHeart:
    centre: Centre
    agreement: float  # its fraction of all that was taken for a heart


def middle(slices: torch.Tensor, count: int) -> torch.Tensor:
    """At most ``count`` slices, spread evenly over the middle half of a stack; every heart reaches these."""
    return slices[np.unique((np.linspace(0.25, 0.75, count) * (len(slices) - 1)).round().astype(int))]


def find_hearts(slices: torch.Tensor, windows: Windows, predict: Predict) -> list[FoundHeart]:
    """Where a heart may be in slices [n, X, Y] without padding, the largest component first."""
    few, shape = middle(slices, SEARCHED), slices.shape[1:]
    whole = replace(windows, size=_covering(shape, windows), reach_mm=np.inf)
    start = (shape[0] // 2, shape[1] // 2)
    probabilities = predict(whole.cut(few, start))
    found = (probabilities.argmax(dim=1) > 0) & whole.inside(start, shape)
    pieces, count = ndimage.label(found.numpy(), structure=np.ones((3, 3, 3)))
    amounts = ndimage.sum_labels(1 - probabilities[:, 0].numpy(), pieces, range(1, count + 1))
    hearts = []
    for piece in np.argsort(-amounts, kind="stable")[:CANDIDATES]:
        if amounts[piece] >= LEAST_AMOUNT * amounts.max():
            _, x, y = ndimage.center_of_mass(pieces == piece + 1)
            place = within(whole.voxel(start, (x, y)), shape)
            hearts.append(FoundHeart(place, float(amounts[piece] / amounts.sum())))
    return hearts


def _covering(shape: Sequence[int], windows: Windows) -> int:
    """The size of a window that shows a whole image, in the steps in which networks of any depth can halve it."""
    pixels = max(size * windows.spacing[axis] for axis, size in enumerate(shape)) / windows.pixel_mm
    return max(windows.size, Windows.rounded(pixels))


def move(slices: torch.Tensor, centre: Centre, windows: Windows, predict: Predict) -> Centre:
    """The centre of the largest connected component in a window; the same place if there is none."""
    probabilities = predict(windows.cut(slices, centre))
    piece = largest_piece(probabilities.argmax(dim=1).numpy() > 0)
    if not piece.any():
        return centre
    _, x, y = ndimage.center_of_mass(piece * (1 - probabilities[:, 0].numpy()))
    return within(windows.voxel(centre, (x, y)), slices.shape[1:])


def largest_piece(mask: np.ndarray, counted: np.ndarray | None = None) -> np.ndarray:
    """The largest connected component of a mask (diagonal neighbours are connected), in the part that is ``counted``;
    of equal ones, the largest in the whole mask."""
    pieces, count = ndimage.label(mask, structure=np.ones((3,) * mask.ndim))
    if count < 2:
        return mask
    weights = None if counted is None else np.broadcast_to(np.where(counted, 1.0, 1e-9), mask.shape).ravel()
    return pieces == 1 + np.bincount(pieces.ravel(), weights)[1:].argmax()
