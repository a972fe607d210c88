"""The beating heart of the phantom: one patient's two ventricles as signed distances and labels.

Lengths are in millimetres. Heights are measured along the long axis from the endocardial apex to the base. The LV
cavity is a half ellipsoid that shortens and narrows in systole. The wall keeps its volume and therefore thickens; its
labels gain some volume on top, as those of patients do, because trabeculae between which no blood is left count as
wall. The RV is a crescent around the septum whose area in each slice follows from its volume
(``right_ventricle.py``). The planes of both valves move towards the apex in systole, so that experts label fewer slices
then.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fclseg.phantom.right_ventricle import Crescent, crescent_distance

RV, MYO, LV = 1, 2, 3
"""Label values of the ACDC challenge."""

Range = tuple[float, float]


@dataclass(frozen=True)
class Group:
    """Ranges of one group of patients at end-diastole."""

    lv_fraction: Range  # ejection fraction of the LV
    radius: Range  # of the LV cavity at the base, mm
    wall: Range  # thickness of the LV wall, mm
    rv_volume: Range  # of the RV, relative to the LV's
    rv_fraction: Range  # ejection fraction of the RV
    flattening: Range = (0.0, 0.06)  # of the septum, relative to the radius


GROUPS: dict[str, Group] = {
    "NOR": Group((0.50, 0.72), (22, 30), (5, 9.5), (0.8, 1.4), (0.45, 0.70)),
    "DCM": Group((0.10, 0.45), (29, 41), (4.5, 9.5), (0.35, 1.2), (0.15, 0.65)),
    "HCM": Group((0.55, 0.80), (20, 29), (9, 20), (0.6, 1.3), (0.45, 0.72)),
    "MINF": Group((0.18, 0.50), (24, 36), (4.5, 10), (0.4, 1.1), (0.35, 0.70)),
    "RV": Group((0.35, 0.68), (18, 29), (4.5, 9.5), (1.2, 3.0), (0.08, 0.50), (0.0, 0.22)),
}
"""The five patient groups of ACDC. Volumes, walls and ejection fractions cover the cohorts of Petersen et al. (J
Cardiovasc Magn Reson 2017, healthy), Kawel-Boehm et al. (ibid. 2020, healthy and the limits of disease) and Bernard et
al. (IEEE TMI 2018, ACDC's definitions of its groups)."""

VALVE_MOTION: Range = (2.0, 17.0)
"""How far the mitral plane moves towards the apex, mm, in a heart with an ejection fraction of 60 %. Measured
excursions are 8 to 15 mm; the lower end stands for experts who label the same slices in both phases."""


@dataclass(frozen=True)
class Heart:
    """What one patient's heart looks like at end-diastole, and how strongly it contracts."""

    group: str
    ejection_fraction: float
    radius: float  # of the LV cavity at the base
    wall: float
    length: float  # of the LV cavity
    shortening: float  # fraction of the length lost at end-systole; how far experts let the base move
    centre: tuple[float, float]  # of the LV in the image plane
    tilt: tuple[float, float]  # drift of the centre per mm along the long axis
    rv_angle: float  # direction from the LV to the RV, radians
    rv: Crescent
    bullet: float  # 2 is an ellipsoid; more is fuller towards the apex
    shape: tuple[tuple[float, float], ...]  # amplitude and phase of the 2nd, 3rd and 4th harmonic of the LV outline
    flattening: float  # of the septum, relative to the radius
    twist: float  # rotation of that outline from apex to base, in radians
    apex_wall: float  # fraction of its thickness that the wall keeps at the apex
    unevenness: tuple[float, float]  # amplitude and direction: where the LV wall is thickest
    papillary: tuple[tuple[float, float, float], ...]  # angle, radius relative to the cavity's, size
    wall_gain: float  # fraction of its volume that the labelled wall gains at end-systole
    inward: float  # distance that the whole endocardium moves, relative to the mean one at the base; closes the apex

    @classmethod
    def draw(cls, rng: np.random.Generator, groups: Mapping[str, Group]) -> "Heart":
        name = str(rng.choice(list(groups)))
        group = groups[name]
        fraction, radius, wall = (rng.uniform(*limits) for limits in (group.lv_fraction, group.radius, group.wall))
        length = rng.uniform(64, 84) + 0.6 * (radius - 24)
        bullet = rng.uniform(2.2, 3.6)
        rv_angle = np.pi + rng.uniform(-0.8, 0.9)
        cavity = _volume(radius, length, bullet)
        return cls(
            group=name,
            ejection_fraction=fraction,
            radius=radius,
            wall=wall,
            length=length,
            shortening=rng.uniform(*VALVE_MOTION) * fraction / 0.6 / length,
            centre=(rng.uniform(-14, 14), rng.uniform(-16, 16)),
            tilt=(rng.uniform(-0.15, 0.15), rng.uniform(-0.15, 0.15)),
            rv_angle=rv_angle,
            rv=Crescent.draw(rng, cavity * rng.uniform(*group.rv_volume), rng.uniform(*group.rv_fraction), length),
            bullet=bullet,
            shape=_harmonics(rng, (0.07, 0.04, 0.02)),
            flattening=rng.uniform(*group.flattening),
            twist=rng.uniform(-0.6, 0.6),
            apex_wall=rng.uniform(0.5, 0.95),
            unevenness=(rng.uniform(0, 0.45), rv_angle + rng.uniform(-1, 1)),
            papillary=tuple(
                (rv_angle + side * rng.uniform(1.6, 2.5), rng.uniform(0.55, 0.8), rng.uniform(3, 6)) for side in (-1, 1)
            ),
            wall_gain=rng.uniform(0, 0.24),
            inward=rng.uniform(1.3, 1.9) * fraction,
        )

    @property
    def volume(self) -> float:
        """Of the LV cavity at end-diastole, mm³."""
        return _volume(self.radius, self.length, self.bullet)

    def centres(self, heights: np.ndarray) -> np.ndarray:
        """Centre of the LV [Z, 2] in slices at ``heights`` [Z]."""
        return np.asarray(self.centre) + np.asarray(self.tilt) * (heights[:, None] - self.length / 2)


@dataclass
class Beat:
    """Signed distances (mm, negative inside) [T, Z, X, Y] of a heart on a grid over the cycle, and edge widths."""

    cavity: np.ndarray  # inside the endocardium
    wall: np.ndarray  # inside the epicardium
    rv: np.ndarray  # inside the RV's endocardium and outside the LV
    papillary: np.ndarray
    below_mitral: np.ndarray  # [T, Z, 1, 1]: mm from the slice up to the mitral valve, negative above it
    below_tricuspid: np.ndarray  # [T, Z, 1, 1]: the same for the valve of the RV
    edge: np.ndarray  # [T, Z, 1, 1]: blur of the outlines by a thick slice through a slanted wall

    def labels(self) -> np.ndarray:
        """Papillary muscles count as cavity, as in ACDC. Above its valves, no part of a ventricle is labelled."""
        has_lv, has_rv = self.below_mitral >= 0, self.below_tricuspid >= 0
        labels = np.where((self.rv < 0) & has_rv, RV, 0).astype(np.uint8)
        labels[(self.wall < 0) & has_lv] = MYO
        labels[(self.cavity < 0) & has_lv] = LV
        labels[(self.wall < 0) & ~has_lv] = 0
        return labels


def contraction(frames: int) -> tuple[np.ndarray, int]:
    """How far the heart has contracted in each frame (0 end-diastole, 1 end-systole), and the end-systolic frame.

    Ejection, rapid filling, diastasis and atrial kick, as in a measured volume curve.
    """
    if frames == 1:
        return np.zeros(1), 0
    systole = max(1, round(0.36 * frames))
    knots = np.array([0, 0.5 * systole, systole, systole + 0.22 * frames, 0.85 * frames, frames])
    curve = np.interp(np.arange(frames), knots, [0, 0.55, 1, 0.3, 0.2, 0])
    return curve, systole


def beat(heart: Heart, x: np.ndarray, y: np.ndarray, heights: np.ndarray, jitter: np.ndarray, frames: int) -> Beat:
    """The heart on the points (x [X, 1], y [1, Y]) of slices at ``heights`` [Z], shifted by ``jitter`` [Z, 2]."""
    curve, _ = contraction(frames)
    heights = heights.astype(np.float32)
    inner, outer, tissue, edge = _radii(heart, heights, curve)
    centre = (heart.centres(heights) + jitter).astype(np.float32)
    dx, dy = x - centre[:, 0, None, None], y - centre[:, 1, None, None]
    distance, angle = np.hypot(dx, dy), np.arctan2(dy, dx)
    septal = np.angle(np.exp(1j * (angle - heart.rv_angle))).astype(np.float32)  # 0 in the middle of the septum
    outline = _outline(angle + heart.twist * (heights / heart.length)[:, None, None], heart.shape)
    outline = outline * (1 - np.float32(heart.flattening) * np.exp(-((septal / 0.6) ** 2)))
    cavity = distance - inner * outline
    uneven = 1 + heart.unevenness[0] * np.cos(angle - heart.unevenness[1])
    epicardium = np.sqrt(inner**2 + (outer**2 - inner**2) * uneven) * outline
    wall = distance - epicardium
    rv, below_tricuspid = crescent_distance(heart.rv, distance, septal, epicardium, outer, heights, curve)
    below_mitral = (heart.length * (1 - heart.shortening * curve[:, None]) - heights)[:, :, None, None]
    papillary = _papillary_distance(heart, dx, dy, inner, tissue / heart.length)
    cavity, wall, rv = (array.astype(np.float32) for array in (cavity, wall, np.maximum(rv, -wall)))
    return Beat(cavity, wall, rv, papillary, below_mitral, below_tricuspid, edge)


def _volume(radius: float, length: float, bullet: float) -> float:
    heights = np.arange(0.5, length)
    return float(np.pi * radius**2 * (half_ellipse(heights, 0, length, bullet) ** 2).sum())


def _harmonics(rng: np.random.Generator, amplitudes: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
    return tuple((rng.uniform(0, a), rng.uniform(-np.pi, np.pi)) for a in amplitudes)


def _outline(angle: np.ndarray, harmonics: tuple[tuple[float, float], ...]) -> np.ndarray:
    """Radius by angle relative to a circle of the same area."""
    wave = sum(a * np.cos(order * (angle - phase)) for order, (a, phase) in enumerate(harmonics, start=2))
    return (1 + wave) / np.sqrt(1 + sum(a * a for a, _ in harmonics) / 2)


def half_ellipse(height: np.ndarray, apex: float, base: float, power: float = 2.0) -> np.ndarray:
    """1 at the base (and above), 0 at the apex (and below)."""
    u = np.clip((base - height) / (base - apex), 0, 1)
    return np.sqrt(1 - u**power)


def _radii(heart: Heart, heights: np.ndarray, curve: np.ndarray) -> tuple[np.ndarray, ...]:
    """Inner and outer LV radius [T, Z, 1, 1], end-diastolic height of the tissue seen [T, Z], edge width [T, Z, 1, 1].

    The cavity is scaled so that the sum over the slices (as in voxel counting) follows the volume curve exactly. The
    ejection fraction of the labels is therefore the one that was drawn.
    """
    stretch = 1 / (1 - heart.shortening * curve[:, None])
    tissue = heights[None] * stretch
    inner = heart.radius * half_ellipse(tissue, 0, heart.length, heart.bullet)
    shape = half_ellipse(tissue, -heart.apex_wall * heart.wall, heart.length, heart.bullet)
    taper = heart.apex_wall + (1 - heart.apex_wall) * np.sqrt(np.clip(tissue / heart.length, 0, 1))
    outer = np.maximum((heart.radius + heart.wall) * shape, 0)
    outer = np.where(inner > 0, np.minimum(outer, inner + heart.wall * taper), outer)
    inwards = heart.inward * heart.radius * (1 - np.sqrt(1 - heart.ejection_fraction * curve[:, None]))
    now = np.maximum(inner - inwards, 0)
    area = np.where(tissue <= heart.length, now**2, 0).sum(axis=1, keepdims=True)
    volume = area[:1] * (1 - heart.ejection_fraction * curve[:, None])
    now = now * np.sqrt(volume / np.maximum(area, 1e-6))
    gain = 1 + heart.wall_gain * curve[:, None]
    outer_now = np.sqrt(now**2 + np.maximum(outer**2 - inner**2, 0) * stretch * gain)
    slope = np.abs(np.gradient(now, axis=1)) if len(heights) > 1 else np.zeros_like(now)
    now, outer_now, edge = (a.astype(np.float32)[:, :, None, None] for a in (now, outer_now, np.clip(slope, 0, 6)))
    return now, outer_now, tissue, edge


def _papillary_distance(
    heart: Heart, dx: np.ndarray, dy: np.ndarray, inner: np.ndarray, ratio: np.ndarray
) -> np.ndarray:
    """The two muscles hang from the wall between a quarter and three quarters of the cavity's height.

    They get smaller with the cavity, so that a contracted one still contains blood.
    """
    nearest = np.full(np.broadcast_shapes(dx.shape, inner.shape), 1e3, dtype=np.float32)
    for angle, offset, size in heart.papillary:
        px, py = (np.float32(offset * part(angle)) * inner for part in (np.cos, np.sin))
        present = np.sqrt(np.clip(1 - ((ratio - 0.5) / 0.3) ** 2, 0, 1), dtype=np.float32)[:, :, None, None]
        present = present * np.minimum(np.float32(size), np.float32(0.45) * inner)
        np.minimum(nearest, np.hypot(dx - px, dy - py) - present, out=nearest, where=present > 0)
    return nearest
