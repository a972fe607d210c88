"""Whether outlines can be trusted on an image: how far blood stands out from the noise.

It needs no labels but those that were found. Where noise is as strong as the contrast, every outline is a guess,
although it may look like a heart.
"""

import numpy as np

from fclseg.anatomy.base import Anatomy, Wall

LAPLACIAN_NORM = 6.0
"""Norm of the difference of two Laplacians below. It removes shading, and the median ignores most edges, so what is
left is noise (Immerkær, "Fast noise variance estimation", 1996)."""
NORMAL_MEDIAN = 0.6745
"""Median absolute value of standard normal noise."""


def contrast_to_noise(labels: np.ndarray, grey: np.ndarray, anatomy: Anatomy) -> float | None:
    """Cavity minus wall in standard deviations of the noise; labels and grey values [S, X, Y].

    Negative if the cavity is darker. None for anatomies without a wall, or if nothing was found.
    """
    walls = [one for one in anatomy.measurements if isinstance(one, Wall)]
    if not walls:
        return None
    inside, outside = (grey[labels == anatomy.structure(name).value] for name in (walls[0].cavity, walls[0].wall))
    noise = _noise(labels > 0, grey)
    if not len(inside) or not len(outside) or not noise:
        return None
    return float(np.median(inside) - np.median(outside)) / noise


def _noise(mask: np.ndarray, grey: np.ndarray) -> float:
    """The standard deviation of the noise in a mask; 0 if it cannot be measured."""
    rows, columns = (np.flatnonzero(mask.any(axis=axes)) for axes in ((0, 2), (0, 1)))
    if not len(rows):
        return 0.0
    box = (slice(None), slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
    second = np.diff(np.diff(grey[box], n=2, axis=1), n=2, axis=2)
    within = mask[box][:, 1:-1, 1:-1]
    return float(np.median(np.abs(second[within]))) / NORMAL_MEDIAN / LAPLACIAN_NORM if within.any() else 0.0
