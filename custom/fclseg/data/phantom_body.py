"""What surrounds the heart in a short-axis image: chest wall, lungs, liver, stomach, great vessels.

Tissues are painted one over the other with soft edges, which is the partial volume of a real pixel.
"""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter

from fclseg.data.phantom_heart import Beat, Heart


@dataclass(frozen=True)
class Contrast:
    """Signal of each tissue in a balanced steady-state sequence, relative to full scale."""

    blood: float
    myocardium: float
    fat: float
    muscle: float
    liver: float
    lung: float


def paint(canvas: np.ndarray, distance: np.ndarray, value: np.ndarray | float, edge: np.ndarray | float) -> None:
    """Blend ``value`` into the canvas where the signed distance is negative."""
    coverage = np.clip(0.5 - distance / edge, 0, 1)
    canvas += coverage * (value - canvas)


def texture(rng: np.random.Generator, shape: tuple[int, ...], sigma: float) -> np.ndarray:
    """Smooth in-plane noise [Z, X, Y] of unit standard deviation."""
    noise = gaussian_filter(rng.standard_normal(shape, dtype=np.float32), sigma=(0.7, sigma, sigma), mode="wrap")
    return noise / noise.std()


def ellipse(x, y, centre: tuple[float, float], half: tuple[float, float], turn: float = 0.0) -> np.ndarray:
    """Approximate signed distance to an ellipse."""
    dx, dy = x - centre[0], y - centre[1]
    u, v = dx * np.cos(turn) + dy * np.sin(turn), dy * np.cos(turn) - dx * np.sin(turn)
    return (np.hypot(u / half[0], v / half[1]) - 1) * np.sqrt(half[0] * half[1])


def thorax(rng: np.random.Generator, x, y, heights: np.ndarray, tissue: Contrast, heart: Heart) -> np.ndarray:
    """Everything but the heart [Z, X, Y]; the liver rises towards the apex, the lung towards the base."""
    shape = (len(heights), x.shape[0], y.shape[1])
    fine, coarse = texture(rng, shape, 1.2), texture(rng, shape, 6)
    level = (heights - heart.length / 2)[:, None, None] / heart.length
    canvas = np.full(shape, 0.01, dtype=np.float32)
    wobble = 3 * coarse
    cx, cy = rng.uniform(20, 40), rng.uniform(15, 35)
    half = (rng.uniform(100, 125), rng.uniform(100, 125))
    body = ellipse(x, y, (cx, cy), half, rng.uniform(-0.4, 0.4)) + 0.7 * wobble
    fat, muscle = rng.uniform(8, 24), rng.uniform(5, 10)
    paint(canvas, body, tissue.fat * (1 + 0.06 * fine), 2)
    paint(canvas, body + fat, tissue.muscle * (1 + 0.12 * fine), 2)
    _ribs(rng, canvas, body + fat + muscle / 2, x - cx, y - cy, tissue)
    paint(canvas, body + fat + muscle, tissue.lung * (1 + 0.3 * fine), 2)
    _lung_vessels(rng, canvas, body + fat + muscle, x, y, tissue)
    _abdomen(rng, canvas, body + fat + muscle, x, y, level, wobble, fine, tissue, heart)
    _pericardium(rng, canvas, x, y, wobble, coarse, tissue, heart)
    return canvas


def _ribs(rng, canvas, depth, dx, dy, tissue: Contrast) -> None:
    """Alternating marrow and cortex along the chest wall."""
    wave = np.cos(np.arctan2(dy, dx) * rng.integers(14, 22) + rng.uniform(0, 6))
    paint(canvas, np.abs(depth) - 3 + 4 * (wave < 0.4), tissue.fat * 0.6, 2)


def _lung_vessels(rng, canvas, depth, x, y, tissue: Contrast) -> None:
    for _ in range(rng.integers(15, 35)):
        spot = np.hypot(x - rng.uniform(-80, 80), y - rng.uniform(-90, 40)) - rng.uniform(0.5, 2)
        layers = rng.random((len(canvas), 1, 1)) < 0.5
        paint(canvas, np.where(layers, np.maximum(spot, depth + 4), 9), tissue.blood * rng.uniform(0.2, 0.8), 2)


def _abdomen(rng, canvas, depth, x, y, level, wobble, fine, tissue: Contrast, heart: Heart) -> None:
    """Liver under the diaphragm, stomach with contents of any brightness, bowel and vessels as distractors, aorta."""
    dome = heart.centre[1] + heart.radius + heart.wall + rng.uniform(2, 14)
    slope = rng.uniform(-0.35, 0.25)
    diaphragm = dome + slope * (x - heart.centre[0]) + 0.004 * (x - heart.centre[0]) ** 2 + 18 * level - y + wobble
    below = np.maximum(diaphragm, depth + 2)
    paint(canvas, below, tissue.liver * (1 + 0.07 * fine), 2.5)
    for _ in range(rng.integers(5, 11)):
        centre = (rng.uniform(-60, 80), dome + rng.uniform(12, 70))
        organ = ellipse(x, y, centre, tuple(rng.uniform(4, 22, 2)), rng.uniform(0, np.pi)) + wobble + 10 * np.abs(level)
        organ = np.maximum(organ, below + 3)
        paint(canvas, organ - rng.uniform(1, 3), rng.uniform(0.5, 1) * tissue.myocardium, 2)
        paint(canvas, organ, rng.uniform(0.1, 1.0) * tissue.blood * (1 + rng.uniform(0, 0.25) * fine), 2)
    aorta = np.hypot(x - heart.centre[0] - rng.uniform(38, 60), y - heart.centre[1] - rng.uniform(15, 45)) - 10
    paint(canvas, aorta - 2, tissue.muscle, 2)
    paint(canvas, aorta, tissue.blood * rng.uniform(0.75, 1.05), 2)


def _pericardium(rng, canvas, x, y, wobble, coarse, tissue: Contrast, heart: Heart) -> None:
    """Patchy fat around both ventricles, most of it on the side of the RV."""
    size, shift = heart.radius + heart.wall, 0.45 * heart.rv_reach
    centre = (heart.centre[0] + shift * np.cos(heart.rv_angle), heart.centre[1] + shift * np.sin(heart.rv_angle))
    half = (size + shift + rng.uniform(3, 9), size + rng.uniform(2, 8))
    sac = ellipse(x, y, centre, half, heart.rv_angle) + wobble
    patchy = tissue.muscle + (tissue.fat - tissue.muscle) / (1 + np.exp(-3 * (coarse + rng.uniform(-0.6, 0.6))))
    paint(canvas, sac, patchy, 3)


def paint_heart(rng: np.random.Generator, canvas: np.ndarray, pulse: Beat, tissue: Contrast, pixel: float) -> None:
    """The ventricles over the thorax, in place on [T, Z, X, Y].

    Blood is not uniform: trabeculae darken it near the wall and flow varies its signal. Above the mitral valve the
    pool without a muscular ring is the left atrium, which looks like the LV and is not labelled.
    """
    shape = canvas.shape[1:]
    fine, coarse = texture(rng, shape, 1.2), texture(rng, shape, 5)
    edge = np.hypot(pixel, pulse.edge)
    muscle = tissue.myocardium * (1 + 0.1 * fine + 0.08 * coarse)
    blood = tissue.blood * (1 + 0.05 * fine + 0.08 * coarse)
    paint(canvas, pulse.rv - rng.uniform(2, 3.5), muscle, edge)
    paint(canvas, pulse.rv, blood * rng.uniform(0.85, 1.0) * (1 - 0.12 * np.clip(fine, 0, None)), edge)
    thickness = np.where(pulse.has_lv, 0, np.maximum(pulse.cavity - pulse.wall - 2.5, 0))
    paint(canvas, pulse.wall + thickness, muscle, edge)
    paint(canvas, pulse.cavity + rng.uniform(0.5, 1.5) * np.clip(fine + 0.3, 0, 2), blood, edge)
    paint(canvas, np.where(pulse.has_lv, pulse.papillary + 0.5 * fine, 9), muscle, edge)
