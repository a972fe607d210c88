"""Find the heart in an image before it is segmented.

A network that was trained on windows around a heart finds something heart-like in many places. But where it is shown
whole slices, it is sure of one place, and finds all structures there together. So a few slices through the middle of
the stack are predicted once, as a whole, and the connected component with the most probability is the heart. A window
is then moved to the centre of what is found in it until it stays (``segment.py``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import ndimage

from fclseg.inference.windows import Centre, Windows, within

SEARCHED = 3
"""Slices of a stack in which the heart is searched."""

Predict = Callable[[torch.Tensor], torch.Tensor]
"""Windows [n, 1, H, W] -> class probabilities [n, C, H, W]."""


@dataclass(frozen=True)
class FoundHeart:
    centre: Centre
    agreement: float  # its fraction of all that was taken for a heart


def middle(slices: torch.Tensor, count: int) -> torch.Tensor:
    """At most ``count`` slices, spread evenly over the middle half of a stack; every heart reaches these."""
    return slices[np.unique((np.linspace(0.25, 0.75, count) * (len(slices) - 1)).round().astype(int))]


def find_heart(slices: torch.Tensor, windows: Windows, predict: Predict) -> FoundHeart | None:
    """The heart in slices [n, X, Y] without padding. None if nothing is found."""
    few, shape = middle(slices, SEARCHED), slices.shape[1:]
    whole = replace(windows, size=_covering(shape, windows), reach_mm=np.inf)
    start = (shape[0] // 2, shape[1] // 2)
    probabilities = predict(whole.cut(few, start))
    found = (probabilities.argmax(dim=1) > 0) & whole.inside(start, shape)
    pieces, count = ndimage.label(found.numpy(), structure=np.ones((3, 3, 3)))
    if count == 0:
        return None
    amounts = ndimage.sum_labels(1 - probabilities[:, 0].numpy(), pieces, range(1, count + 1))
    best = int(np.argmax(amounts))
    _, x, y = ndimage.center_of_mass(pieces == best + 1)
    return FoundHeart(within(whole.voxel(start, (x, y)), shape), float(amounts[best] / amounts.sum()))


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


def largest_piece(mask: np.ndarray) -> np.ndarray:
    """The largest connected component of a mask (diagonal neighbours are connected)."""
    pieces, count = ndimage.label(mask, structure=np.ones((3,) * mask.ndim))
    if count < 2:
        return mask
    return pieces == 1 + np.bincount(pieces.ravel())[1:].argmax()
