"""A cavity is filled with blood, which is brighter than the wall.

Networks sometimes outline far too large a cavity in a thick wall that has contracted around a small one. In such a
slice the outline mostly contains dark pixels, so it is reduced to the blood. The convex hull keeps papillary muscles,
which count as cavity.
"""

import numpy as np
from scipy import ndimage
from scipy.spatial import ConvexHull, QhullError

from fclseg.anatomy.base import Anatomy, Wall

BLOOD_PERCENTILE = 90
LEVEL = 0.15
SMALL_PIECE = 0.1
LEAST_BLOOD = 0.7
"""Blood is what is brighter than the wall by this part of their difference. Pieces smaller than a fraction of the
largest one are noise. A slice is changed if the blood's hull covers less than this fraction of its cavity. Chosen with
the shipped weights on ACDC patients with odd numbers, and checked on those with even numbers (docs/results.md)."""


def cavities_of_blood(labels: np.ndarray, grey: np.ndarray, anatomy: Anatomy) -> np.ndarray:
    """Labels [S, X, Y], with the dark part of a cavity that is mostly dark given to its wall."""
    labels = labels.copy()
    for one in (measurement for measurement in anatomy.measurements if isinstance(measurement, Wall)):
        cavity, wall = (anatomy.structure(name).value for name in (one.cavity, one.wall))
        threshold = _threshold(labels, grey, wall)
        for plane, shades in zip(labels, grey, strict=True):
            inside = plane == cavity
            blood = hull_within(_without_noise(inside & (shades > threshold)), inside)
            if blood.sum() < LEAST_BLOOD * inside.sum():
                plane[inside & ~blood] = wall
    return labels


def _threshold(labels: np.ndarray, grey: np.ndarray, wall: int) -> float:
    """Between wall and blood; other structures than the wall are blood, too. Lets everything pass if one is missing."""
    muscle, pools = grey[labels == wall], grey[(labels > 0) & (labels != wall)]
    if not len(muscle) or not len(pools):
        return -np.inf
    dark = float(np.median(muscle))
    return dark + LEVEL * (float(np.percentile(pools, BLOOD_PERCENTILE)) - dark)


def _without_noise(mask: np.ndarray) -> np.ndarray:
    pieces, _ = ndimage.label(mask, structure=np.ones((3, 3)))
    sizes = np.bincount(pieces.ravel())
    sizes[0] = 0
    return mask & (sizes >= SMALL_PIECE * sizes.max())[pieces]


def hull_within(mask: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The pixels of ``inside`` in the convex hull of ``mask``; the mask itself if it is smaller than a triangle."""
    try:
        hull = ConvexHull(np.argwhere(mask))
    except (QhullError, ValueError):
        return mask
    places = np.argwhere(inside)
    sides = places @ hull.equations[:, :2].T + hull.equations[:, 2]
    filled = mask.copy()
    filled[tuple(places[(sides <= 1e-6).all(axis=1)].T)] = True
    return filled
