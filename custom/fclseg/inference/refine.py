"""Test-time augmentation and cleaning of a prediction: averaging over rotated and scaled images, then clean-up.

Both use knowledge that needs no labels: a heart that is rotated or slightly larger is the same heart, every structure
of a compact organ is one connected component, and a cavity has no holes. Mirror images are not averaged, because no
heart has its right ventricle on the other side (``data/augment.py``).
"""

import numpy as np
import torch
from scipy import ndimage
from torch.nn import functional as F

from fclseg.anatomy.base import Anatomy, Wall
from fclseg.inference.locate import Predict, largest_piece

VIEWS = ((0.0, 1.0), (-20.0, 1.0), (20.0, 1.0), (0.0, 0.9), (0.0, 1.12))
"""Degrees, and the visible part of the window: well within the range of the augmentation during training. The first is
the window itself."""

SMALL_COMPONENT = 0.1
"""If a structure may have several components, those smaller than this fraction of the largest one are removed."""


def views(images: torch.Tensor, predict: Predict, count: int = len(VIEWS)) -> torch.Tensor:
    """The predictions [count, n, C, H, H] for the first views, each transformed back."""
    return torch.stack(
        [_turned(predict(_turned(images, angle, scale)), -angle, 1 / scale) for angle, scale in VIEWS[:count]]
    )


def averaged(predict: Predict) -> Predict:
    """``predict`` averaged over all views."""
    return lambda images: views(images, predict).mean(dim=0)


def _turned(planes: torch.Tensor, degrees: float, scale: float) -> torch.Tensor:
    """Square planes [n, C, H, H] rotated about their centre. Outside the planes their border is repeated."""
    if degrees == 0 and scale == 1:
        return planes
    angle = np.deg2rad(degrees)
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    maps = torch.tensor([[[cos, -sin, 0.0], [sin, cos, 0.0]]], dtype=planes.dtype, device=planes.device)
    grid = F.affine_grid(maps, [1, *planes.shape[1:]], align_corners=False).expand(len(planes), -1, -1, -1)
    return F.grid_sample(planes, grid, padding_mode="border", align_corners=False)


def keep_largest_piece(labels: np.ndarray) -> np.ndarray:
    """Background everywhere except in the largest connected component of all structures together."""
    return np.where(largest_piece(labels > 0), labels, 0).astype(labels.dtype)


def cleaned(labels: np.ndarray, anatomy: Anatomy) -> np.ndarray:
    """A label map [S, X, Y] as its anatomy allows it: one component per structure, and no holes in a cavity.

    It is the largest one in slices that show another structure, too: beyond the apex, a stomach can be larger than a
    right ventricle. Everything else becomes background. Organs that are not compact may have a structure in several
    places. For them, only the largest component of all structures together is kept. Separate organs only lose small
    components.
    """
    if not anatomy.one_organ:
        return _without_small_components(labels)
    labels = keep_largest_piece(labels)
    if not anatomy.compact:
        return labels
    for structure in anatomy.structures:
        mask = labels == structure.value
        beside = ((labels > 0) & ~mask).any(axis=(1, 2))
        labels[mask & ~largest_piece(mask, beside[:, None, None])] = 0
    for wall in (one for one in anatomy.measurements if isinstance(one, Wall)):
        _fill(labels, anatomy.structure(wall.cavity).value, anatomy.structure(wall.wall).value)
    return labels


def _without_small_components(labels: np.ndarray) -> np.ndarray:
    """Removes the components of each structure that are much smaller than its largest one."""
    kept = np.zeros_like(labels)
    for value in np.unique(labels[labels > 0]):
        pieces, _ = ndimage.label(labels == value, structure=np.ones((3,) * labels.ndim))
        sizes = np.bincount(pieces.ravel())
        sizes[0] = 0
        kept[(sizes >= SMALL_COMPONENT * sizes.max())[pieces] & (pieces > 0)] = value
    return kept


def _fill(labels: np.ndarray, cavity: int, wall: int) -> None:
    """Fill the holes of a cavity and its wall taken together, slice by slice. They become part of the cavity."""
    for plane in labels:
        both = (plane == cavity) | (plane == wall)
        plane[ndimage.binary_fill_holes(both) & ~both & (plane == 0)] = cavity
