"""The surroundings of the heart in a short-axis image: chest wall, lungs, liver, stomach, great vessels.

Tissues are painted over each other with soft edges, which imitate the partial volume effect of real pixels.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter

from fclseg.phantom.heart import Beat, Heart, half_ellipse

SMOOTH_CAVITY = 15
"""Cavities with a smaller radius (mm) have proportionally smaller trabeculae."""


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

    def ellipse(self, centre: Iterable, half: Iterable, turn: float = 0.0) -> np.ndarray:
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


def thorax(rng: np.random.Generator, plane: Plane, heart: Heart) -> np.ndarray:
    """Everything except the heart [Z, X, Y]: skin, fat, muscle and ribs around lung, abdomen and pericardial fat."""
    tissue = plane.tissue
    fine, coarse, slow = (plane.texture(rng, sigma) for sigma in (1.2, 5, 14))
    canvas = np.full(plane.shape, 0.01, dtype=np.float32)
    away, side = rng.uniform(10, 50), rng.uniform(-np.pi, np.pi)
    cx, cy = away * np.cos(side), away * np.sin(side)
    half, turn = rng.uniform(90, 140, 2), rng.uniform(-0.5, 0.5)
    around = np.arctan2(plane.y - cy, plane.x - cx)
    body = plane.ellipse((cx, cy), half, turn) + 2.5 * slow
    fat = rng.uniform(6, 20) * (1 + rng.uniform(0, 0.6) * np.cos(around - rng.uniform(-np.pi, np.pi)))
    chest = body + fat
    inside = chest + rng.uniform(5, 11) + 0.8 * coarse
    paint(canvas, body, tissue.fat * (1 + 0.05 * fine + 0.08 * slow), 2)
    paint(canvas, chest + coarse, tissue.muscle * (1 + 0.15 * fine), 2)
    ribs = np.cos(around * rng.integers(12, 20) + rng.uniform(0, 6))
    paint(canvas, np.abs((chest + inside) / 2) - 5 + 5 * (1 - ribs), tissue.fat * rng.uniform(0.4, 0.8), 2)
    vessels = tissue.blood * np.clip(fine - rng.uniform(1.6, 2.2), 0, 1)
    paint(canvas, inside, tissue.lung * (1 + 0.3 * coarse) + vessels, 2)
    _clutter(rng, canvas, plane, inside, fine)
    _abdomen(rng, canvas, plane, heart, inside, fine, coarse)
    _pericardium(rng, canvas, plane, heart, coarse)
    return canvas


def _clutter(rng, canvas, plane: Plane, inside, fine) -> None:
    """Patches of random size and signal in the lung, because real stacks show more than a model can contain."""
    for _ in range(rng.integers(2, 7)):
        size = rng.uniform(4, 16)
        patch = size * plane.pixel * (rng.uniform(0.3, 1.8) - plane.texture(rng, size))
        signal = rng.uniform(0.05, 0.9) * (1 + rng.uniform(0, 0.2) * fine)
        paint(canvas, np.maximum(patch, inside + 1), signal, rng.uniform(2, 6))


def _abdomen(rng, canvas, plane: Plane, heart: Heart, inside, fine, coarse) -> None:
    """Liver under the diaphragm, rising towards the apex, with stomach, bowel and vessels of random appearance."""
    tissue, (hx, hy) = plane.tissue, heart.centre
    level = (plane.heights / heart.length - 0.5)[:, None, None]
    dome = hy + heart.radius + heart.wall + rng.uniform(-10, 8)
    sideways = plane.x - hx
    diaphragm = dome + rng.uniform(-0.35, 0.25) * sideways + 0.004 * sideways**2 + 18 * level - plane.y + 2 * coarse
    below = np.maximum(diaphragm, inside + 2)
    paint(canvas, below, tissue.liver * (1 + 0.06 * fine + 0.08 * coarse), 2.5)
    for _ in range(rng.integers(10, 20)):
        centre = (rng.uniform(-70, 90), dome + rng.uniform(5, 75))
        organ = plane.ellipse(centre, rng.uniform(3, 24, 2), rng.uniform(0, np.pi))
        organ = np.maximum(organ + 2 * coarse + 12 * (level - rng.uniform(-0.4, 0.4)) ** 2, below + rng.uniform(1, 4))
        paint(canvas, organ - rng.uniform(0.5, 3), rng.choice([0.5 * tissue.muscle, tissue.myocardium, tissue.fat]), 2)
        signal = rng.uniform(0.05, 1.0) * tissue.blood
        paint(canvas, organ, signal * (1 + rng.uniform(0, 0.3) * fine + 0.1 * coarse), 2)
    aorta = plane.ellipse((hx + rng.uniform(38, 65), hy + rng.uniform(5, 50)), rng.uniform(8, 12, 2)) + 0.5 * coarse
    paint(canvas, aorta - 2, tissue.muscle, 2)
    paint(canvas, aorta, tissue.blood * rng.uniform(0.7, 1.05), 2)


def _pericardium(rng, canvas, plane: Plane, heart: Heart, coarse) -> None:
    """Patchy fat around both ventricles, most of it on the side of the RV."""
    size = (0.3 + 0.7 * half_ellipse(plane.heights, -2 * heart.wall, heart.length))[:, None, None]
    radius, shift = (heart.radius + heart.wall) * size, 0.45 * heart.rv_reach * size
    x, y = heart.centres(plane.heights).T[:, :, None, None]
    centre = (x + shift * np.cos(heart.rv_angle), y + shift * np.sin(heart.rv_angle))
    sac = plane.ellipse(centre, (radius + shift + rng.uniform(-1, 4), radius + rng.uniform(-1, 4)), heart.rv_angle)
    share = 1 / (1 + np.exp(-4 * (coarse + rng.uniform(-1.2, 0.3))))
    dark = rng.uniform(0.4, 1.0) * plane.tissue.muscle
    paint(canvas, sac + 1.5 * coarse, dark + (plane.tissue.fat - dark) * share, 3)


def paint_heart(rng: np.random.Generator, canvas: np.ndarray, plane: Plane, heart: Heart, pulse: Beat) -> None:
    """The ventricles over the thorax, in place on [T, Z, X, Y].

    Blood is not uniform: trabeculae roughen its border and flow varies its signal. Above its valves, a ventricle is
    replaced by atrium and great vessels, which look similar and are not labelled.
    """
    fine, coarse = (plane.texture(rng, sigma) for sigma in (1.1, 4))
    tissue, edge = plane.tissue, np.hypot(plane.pixel, pulse.edge)
    muscle = tissue.myocardium * (1 + 0.12 * fine + 0.12 * coarse)
    blood = tissue.blood * (1 + 0.06 * fine + rng.uniform(0.05, 0.25) * coarse)
    rough = rng.uniform(1.0, 3.5) * np.clip(fine, 0, 2.5)
    pool = blood * rng.uniform(0.8, 1.05) * (1 - rng.uniform(0, 0.2) * np.clip(fine, 0, 2.5))
    outflow = _great_vessels(rng, plane, heart)
    right, atrial_wall = np.where(pulse.has_rv, pulse.rv, outflow), rng.uniform(1, 3)
    paint(canvas, right - np.where(pulse.has_rv, rng.uniform(1.5, 3.5), atrial_wall), muscle, edge)
    paint(canvas, right + np.where(pulse.has_rv, rough, 0), pool, edge)
    thickness = np.where(pulse.has_lv, 0, np.maximum(pulse.cavity - pulse.wall - atrial_wall, 0))
    paint(canvas, pulse.wall + thickness, muscle, edge)
    depth = -pulse.cavity.min(axis=(2, 3), keepdims=True)  # trabeculae never hide all the blood of a small cavity
    paint(canvas, pulse.cavity + rough * np.clip(depth / SMOOTH_CAVITY, 0, 1), blood, edge)
    paint(canvas, np.where(pulse.has_lv, pulse.papillary + fine, 9), muscle, edge)


def _great_vessels(rng, plane: Plane, heart: Heart) -> np.ndarray:
    """Signed distance [Z, X, Y] to aorta, pulmonary trunk and right atrium, next to the LV on the side of the RV."""
    nearest = np.full(plane.shape, 1e3, dtype=np.float32)
    x, y = heart.centres(plane.heights).T[:, :, None, None]
    outer = heart.radius + heart.wall
    for turn, size in (
        (rng.uniform(-0.5, 0.5), (9, 16)),
        (rng.uniform(0.5, 1.4), (9, 17)),
        (-rng.uniform(0.5, 1.4), (12, 26)),
    ):
        half = rng.uniform(*size, 2)
        away, angle = outer + half.mean() + rng.uniform(-4, 6), heart.rv_angle + turn
        vessel = plane.ellipse((x + away * np.cos(angle), y + away * np.sin(angle)), half, rng.uniform(0, np.pi))
        if rng.uniform() < 0.85:
            np.minimum(nearest, vessel, out=nearest)
    return nearest
