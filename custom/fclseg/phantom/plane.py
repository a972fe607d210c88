"""The plane on which the phantom is painted: positions of the pixels, signal of the tissues, soft edges."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter


@dataclass(frozen=True)
class Contrast:
    """Signal of each tissue in a balanced steady-state sequence, relative to full scale."""

    blood: float
    myocardium: float
    fat: float
    muscle: float
    liver: float
    lung: float


@dataclass(frozen=True)
class Plane:
    """Positions of the pixels (mm, [X, Y]) and of the slices (mm above the apex, [Z]), and the signal there."""

    x: np.ndarray
    y: np.ndarray
    heights: np.ndarray
    pixel: float
    tissue: Contrast

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.heights), *np.broadcast_shapes(self.x.shape, self.y.shape)

    def ellipse(self, centre: Iterable[Any], half: Iterable[Any], turn: float = 0.0) -> np.ndarray:
        """Approximate signed distance to an ellipse whose centre and half axes may differ by slice."""
        cos, sin, cx, cy, a, b = (np.asarray(n, np.float32) for n in (np.cos(turn), np.sin(turn), *centre, *half))
        dx, dy = self.x - cx, self.y - cy
        return (np.hypot((dx * cos + dy * sin) / a, (dy * cos - dx * sin) / b) - 1) * np.sqrt(a * b)

    def texture(self, rng: np.random.Generator, sigma: float) -> np.ndarray:
        """Noise [Z, X, Y] of unit standard deviation, smoothed over ``sigma`` pixels in all directions."""
        noise = rng.standard_normal(self.shape, dtype=np.float32)
        across = sigma * self.pixel / abs(self.heights[0] - self.heights[1])
        noise = gaussian_filter(noise, sigma=(max(across, 0.5), sigma, sigma), mode="wrap")
        return noise / noise.std()


def paint(canvas: np.ndarray, distance: np.ndarray, value: np.ndarray | float, edge: np.ndarray | float) -> None:
    """Blend ``value`` into the canvas where the signed distance is negative."""
    coverage = np.clip(0.5 - distance / edge, 0, 1)
    canvas += coverage * (value - canvas)
