"""The surroundings of the heart in a short-axis image: chest wall, lungs, liver, stomach, great vessels.

Tissues are painted over each other with soft edges, which imitate the partial volume effect of real pixels.
"""

from dataclasses import dataclass

import numpy as np

from fclseg.phantom.heart import Beat, Heart
from fclseg.phantom.plane import Plane, paint
from fclseg.phantom.vessels import Vessel, draw_vessels

RV_WALL = 6.0
"""Largest thickness (mm) of the free wall of the RV."""

RV_BLOOD = (0.55, 1.08)
"""Signal of the blood in the RV relative to that in the LV."""

RV_APEX = (0.0, 0.5)
"""How much darker the blood in the RV looks at its apex than at its base, where trabeculae leave less room."""

RIM = (0.0, 4.0)
"""How much wider (mm) the dark ring of the LV looks than the wall that experts outline, where it does not touch the RV:
pericardium and the dark line between muscle and fat."""

LV_LAYER, RV_LAYER = (-1.0, 1.8), (-0.2, 2.2)
"""Thickness (mm) of the layer of trabeculae that looks like wall and that experts count as cavity; negative where they
draw inside of the blood's border."""

COMPACTION = (0.0, 0.5)
"""Share of the endocardium's inward motion that trabeculae and papillary muscles fill, so that at end-systole much less
blood is seen than experts outline."""

BLOODLESS = 0.7
"""Largest share of a cavity's depth that they fill."""

VALVE_TILT, VALVE_MARGIN = (0.0, 0.3), (-4.0, 2.5)
"""Slope of the mitral plane against the slices, and how far (mm) above it experts still outline a whole ventricle: a
basal slice shows wall on one side and atrium on the other. Some stop below it."""

FAT_HEARTS, FAT_MM = 0.08, (4.0, 20.0)
"""Share of the hearts that lie in much more fat than others, and how thick it is."""


@dataclass(frozen=True)
class DarkBlood:
    """Blood that gives little signal because it is fast or turbulent. Ranges; heights relative to the LV's length."""

    chance: float
    darkness: tuple[float, float]
    half: tuple[float, float]  # axes of the region, mm
    height: tuple[float, float]
    depth: float  # how far along the long axis it reaches


DARK_BLOOD = (
    DarkBlood(0.5, (0.0, 0.6), (4, 14), (0.6, 1.1), 0.4),  # jets in the ventricles
    DarkBlood(0.3, (0.3, 0.95), (8, 24), (0.9, 1.35), 0.3),  # outflow tract and atria
)

SMOOTH_CAVITY = 12
"""Cavities with a smaller radius (mm) have proportionally smaller trabeculae."""


def thorax(rng: np.random.Generator, plane: Plane, heart: Heart, pulse: Beat) -> np.ndarray:
    """Everything except the heart [T, Z, X, Y]: skin, fat, muscle and ribs around lung, abdomen and pericardial fat.

    The chest wall is nearest on the side of the RV and never cuts the heart.
    """
    tissue = plane.tissue
    fine, coarse, slow = (plane.texture(rng, sigma) for sigma in (1.2, 5, 14))
    canvas = np.full(plane.shape, 0.01, dtype=np.float32)
    outside_heart = np.minimum(pulse.wall[0], pulse.rv[0]).min(axis=0)
    away, side = rng.uniform(15, 85), heart.rv_angle + np.pi + rng.uniform(-1.4, 1.4)
    cx, cy = away * np.cos(side), away * np.sin(side)
    half, turn = rng.uniform(95, 165, 2), rng.uniform(-0.5, 0.5)
    around = np.arctan2(plane.y - cy, plane.x - cx)
    muscle_wall, gap = rng.uniform(5, 11), rng.uniform(3, 12)
    fat = rng.uniform(5, 25) * (1 + rng.uniform(0, 0.6) * np.cos(around - rng.uniform(-np.pi, np.pi)))
    inside = plane.ellipse((cx, cy), half, turn) + fat + muscle_wall
    inside = np.minimum(inside, outside_heart - gap) + 0.8 * coarse
    chest = inside - muscle_wall
    body = chest - fat + 2.5 * slow
    paint(canvas, body, tissue.fat * (1 + 0.05 * fine + 0.08 * slow), 2)
    paint(canvas, chest + coarse, tissue.muscle * (1 + 0.15 * fine), 2)
    ribs = np.cos(around * rng.integers(12, 20) + rng.uniform(0, 6))
    paint(canvas, np.abs((chest + inside) / 2) - 5 + 5 * (1 - ribs), tissue.fat * rng.uniform(0.4, 0.8), 2)
    vessels = tissue.blood * np.clip(fine - rng.uniform(1.6, 2.2), 0, 1)
    paint(canvas, inside, tissue.lung * (1 + 0.3 * coarse) + vessels, 2)
    _clutter(rng, canvas, plane, inside, fine)
    _abdomen(rng, canvas, plane, heart, inside, fine, coarse)
    return _pericardium(rng, canvas, plane, pulse, coarse, fine)


def _clutter(rng: np.random.Generator, canvas: np.ndarray, plane: Plane, inside: np.ndarray, fine: np.ndarray) -> None:
    """Patches of random size and signal in the lung, because real stacks show more than a model can contain."""
    for _ in range(rng.integers(2, 7)):
        size = rng.uniform(4, 16)
        patch = size * plane.pixel * (rng.uniform(0.3, 1.8) - plane.texture(rng, size))
        signal = rng.uniform(0.05, 0.9) * (1 + rng.uniform(0, 0.2) * fine)
        paint(canvas, np.maximum(patch, inside + 1), signal, rng.uniform(2, 6))


def _abdomen(
    rng: np.random.Generator,
    canvas: np.ndarray,
    plane: Plane,
    heart: Heart,
    inside: np.ndarray,
    fine: np.ndarray,
    coarse: np.ndarray,
) -> None:
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


def _pericardium(
    rng: np.random.Generator, canvas: np.ndarray, plane: Plane, pulse: Beat, coarse: np.ndarray, fine: np.ndarray
) -> np.ndarray:
    """Patchy fat around both ventricles [T, Z, X, Y], most of it on the side of the RV, inside a thin dark line.

    It follows the heart only in part: what the ventricles give up in systole is filled by fat and by the atria.
    """
    beside = np.minimum(pulse.wall, pulse.rv - RV_WALL)
    follows = np.float32(rng.uniform(0, 1))
    heart = np.minimum(follows * beside + (1 - follows) * beside[:1], beside)
    near_rv = 1 / (1 + np.exp(np.clip((pulse.rv[:1] - pulse.wall[:1]) / 12, -20, 20)))
    thickness = rng.uniform(0, 3) + rng.uniform(0, 6) * near_rv * np.clip(0.6 + 0.6 * coarse, 0, 2)
    thickness += rng.uniform(*FAT_MM) * (rng.uniform() < FAT_HEARTS)
    share = 1 / (1 + np.exp(-4 * (coarse + rng.uniform(-2.4, 0.5))))
    dark = rng.uniform(0.4, 1.0) * plane.tissue.muscle
    sac = heart - thickness
    canvas = np.repeat(canvas[None], len(pulse.wall), axis=0)
    paint(canvas, sac - rng.uniform(0, 2), dark, 2)
    paint(canvas, sac, dark + (plane.tissue.fat * (1 + 0.06 * fine) - dark) * share, 3)
    return canvas


@dataclass(frozen=True)
class Palette:
    """The tissues of one patient's heart, as both ventricles are painted with them."""

    muscle: np.ndarray  # [Z, X, Y]
    blood: np.ndarray
    fine: np.ndarray  # texture of trabeculae
    pixel: float
    edge: np.ndarray  # [T, Z, 1, 1]: width of the ventricles' outlines, mm


def paint_heart(rng: np.random.Generator, canvas: np.ndarray, plane: Plane, heart: Heart, pulse: Beat) -> np.ndarray:
    """The heart over the thorax, in place on [T, Z, X, Y]; returns where the blood above the valves is.

    A slice is as thick as its distance to the next one, or thinner. Where it contains a valve it shows both the
    ventricle and what lies above it.
    """
    fine, coarse = (plane.texture(rng, sigma) for sigma in (1.1, 4))
    muscle = plane.tissue.myocardium * (1 + 0.12 * fine + 0.12 * coarse)
    blood = plane.tissue.blood * (1 + 0.06 * fine + rng.uniform(0.02, 0.2) * coarse)
    blood = blood * _flow(rng, plane, heart, coarse)
    palette = Palette(muscle, blood, fine, plane.pixel, np.hypot(plane.pixel, pulse.edge))
    thick = rng.uniform(0.5, 1.0) * abs(plane.heights[0] - plane.heights[1]) if len(plane.heights) > 1 else 1.0
    right, left = draw_vessels(rng, plane, heart)
    mitral = pulse.below_mitral + _valve_slant(rng, plane, heart)
    lv, rv = (np.clip(below / thick + 0.5, 0, 1) for below in (mitral, pulse.below_tricuspid))
    for paint_ventricle, vessels, share in ((_paint_rv, right, rv), (_paint_lv, left, lv)):
        above, below = _with_vessels(canvas, vessels, palette), canvas.copy()
        paint_ventricle(rng, below, pulse, palette)
        canvas[...] = np.where(share == 1, below, share * below + (1 - share) * above)
    beside = (pulse.wall > 0) | (lv < 0.5)
    return (_blood(left) & (lv < 0.5)) | (_blood(right) & (rv < 0.5) & beside)


def _with_vessels(canvas: np.ndarray, vessels: list[Vessel], palette: Palette) -> np.ndarray:
    painted = canvas.copy()
    for distance, wall in vessels:
        paint(painted, distance - wall, palette.muscle, palette.pixel)
        paint(painted, distance, palette.blood, palette.pixel)
    return painted


def _blood(vessels: list[Vessel]) -> np.ndarray:
    return np.minimum.reduce([distance for distance, _ in vessels]) < 0


def _paint_rv(rng: np.random.Generator, canvas: np.ndarray, pulse: Beat, palette: Palette) -> None:
    """The RV with its thin free wall and trabeculae."""
    fine = np.clip(palette.fine, 0, 2.5)
    rough = rng.uniform(0.5, 3.5) * fine
    pool = palette.blood * rng.uniform(*RV_BLOOD) * (1 - rng.uniform(0, 0.45) * fine)
    towards_apex = np.clip(pulse.below_tricuspid / max(float(pulse.below_tricuspid.max()), 1.0), 0, 1)
    pool = pool * (1 - rng.uniform(*RV_APEX) * towards_apex**2).astype(np.float32)
    paint(canvas, pulse.rv - rng.uniform(2.0, RV_WALL), palette.muscle, palette.edge)
    layer = rng.uniform(*RV_LAYER) + _compacted(rng, _depth(pulse.rv))
    paint(canvas, pulse.rv + rough + layer, pool, palette.edge)


def _paint_lv(rng: np.random.Generator, canvas: np.ndarray, pulse: Beat, palette: Palette) -> None:
    """The LV with trabeculae and papillary muscles."""
    rough = rng.uniform(0.5, 4.0) * np.clip(palette.fine, 0, 2.5)
    rim = rng.uniform(*RIM) * np.clip(pulse.rv / RV_WALL, 0, 1)
    paint(canvas, pulse.wall - rim, palette.muscle * rng.uniform(0.6, 1.0), palette.edge)
    paint(canvas, pulse.wall, palette.muscle, palette.edge)
    depth = _depth(pulse.cavity)  # trabeculae never hide all the blood of a small cavity
    rough = (rough + rng.uniform(*LV_LAYER)) * np.clip(depth / SMOOTH_CAVITY, 0, 1)
    paint(canvas, pulse.cavity + rough + _compacted(rng, depth), palette.blood, palette.edge)
    paint(canvas, pulse.papillary + palette.fine, palette.muscle, palette.edge)


def _depth(inside: np.ndarray) -> np.ndarray:
    """Largest distance [T, Z, 1, 1] to the border inside each slice, mm; 0 in slices without any."""
    return np.maximum(-inside.min(axis=(2, 3), keepdims=True), 0)


def _compacted(rng: np.random.Generator, depth: np.ndarray) -> np.ndarray:
    """Thickness [T, Z, 1, 1] of the layer from which contraction has pressed the blood."""
    return np.minimum(rng.uniform(*COMPACTION) * np.maximum(depth[:1] - depth, 0), BLOODLESS * depth)


def _valve_slant(rng: np.random.Generator, plane: Plane, heart: Heart) -> np.ndarray:
    """How much farther [Z, X, Y] each pixel lies below the mitral valve than experts' outlines suggest, mm."""
    direction, slope = rng.uniform(-np.pi, np.pi), rng.uniform(*VALVE_TILT)
    x, y = heart.centres(plane.heights).T[:, :, None, None]
    along = (plane.x - x) * np.cos(direction) + (plane.y - y) * np.sin(direction)
    return (slope * along - rng.uniform(*VALVE_MARGIN)).astype(np.float32)


def _flow(rng: np.random.Generator, plane: Plane, heart: Heart, coarse: np.ndarray) -> np.ndarray:
    """A factor [Z, X, Y] that darkens some of the blood, mostly near the valves."""
    level = (plane.heights / heart.length)[:, None, None]
    x, y = heart.centres(plane.heights).T[:, :, None, None]
    factor = np.ones(plane.shape, dtype=np.float32)
    for flow in DARK_BLOOD:
        strength = rng.uniform(*flow.darkness) * (rng.uniform() < flow.chance)
        centre = (x + rng.uniform(-15, 15), y + rng.uniform(-15, 15))
        place = plane.ellipse(centre, rng.uniform(*flow.half, 2), rng.uniform(0, 3))
        near = np.clip(1 - (place + 3 * coarse) / 6, 0, 1)
        factor *= 1 - strength * near * np.clip(1 - np.abs(level - rng.uniform(*flow.height)) / flow.depth, 0, 1)
    return factor
