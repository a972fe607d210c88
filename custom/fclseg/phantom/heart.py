"""The beating heart of the phantom: one patient's two ventricles as signed distances and labels.

Lengths are in millimetres. Heights are measured along the long axis from the endocardial apex to the base. The cavity
is a half ellipsoid that shortens and narrows in systole. The wall keeps its volume and therefore thickens; its labels
gain some volume on top, as those of patients do, because trabeculae between which no blood is left count as wall.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

RV, MYO, LV = 1, 2, 3
"""Label values of the ACDC challenge."""

GroupRanges = tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]

GROUPS: dict[str, GroupRanges] = {
    # group: (ejection fraction, LV cavity radius, LV wall, reach of the RV beyond the septum)
    "NOR": ((0.50, 0.70), (24, 31), (7, 11.5), (32, 46)),
    "DCM": ((0.12, 0.40), (31, 41), (7, 11), (30, 50)),
    "HCM": ((0.60, 0.78), (21, 30), (9, 18), (30, 44)),
    "MINF": ((0.20, 0.48), (26, 36), (7, 12), (30, 46)),
    "RV": ((0.40, 0.65), (22, 30), (7, 10.5), (42, 62)),
}
"""The five patient groups of ACDC; together they span ejection fractions from 12 to 78 %."""


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
    rv_reach: float
    rv_extent: float  # half length of the RV along the septum, relative to the LV's outer radius
    rv_base: float  # height of the RV's valves relative to the mitral valve
    bullet: float  # 2 is an ellipsoid; more is fuller towards the apex
    shape: tuple[tuple[float, float], ...]  # amplitude and phase of the 2nd, 3rd and 4th harmonic of the LV outline
    twist: float  # rotation of that outline from apex to base, in radians
    rv_shape: tuple[tuple[float, float], ...]
    apex_wall: float  # fraction of its thickness that the wall keeps at the apex
    unevenness: tuple[float, float]  # amplitude and direction: where the LV wall is thickest
    papillary: tuple[tuple[float, float, float], ...]  # angle, radius relative to the cavity's, size
    wall_gain: float  # fraction of its volume that the labelled wall gains at end-systole
    inward: float  # distance that the whole endocardium moves, relative to the mean one at the base; closes the apex

    @classmethod
    def draw(cls, rng: np.random.Generator, groups: Mapping[str, GroupRanges]) -> "Heart":
        group = str(rng.choice(list(groups)))
        fraction, radius, wall, reach = (rng.uniform(*limits) for limits in groups[group])
        rv_angle = np.pi + rng.uniform(-0.8, 0.9)
        return cls(
            group=group,
            ejection_fraction=fraction,
            radius=radius,
            wall=wall,
            length=rng.uniform(68, 84) + 0.6 * (radius - 24),
            shortening=rng.uniform(0.05, 0.28) * fraction**2,
            centre=(rng.uniform(-22, 10), rng.uniform(-18, 20)),
            tilt=(rng.uniform(-0.15, 0.15), rng.uniform(-0.15, 0.15)),
            rv_angle=rv_angle,
            rv_reach=reach,
            rv_extent=rng.uniform(0.9, 1.3),
            rv_base=rng.uniform(0.8, 1.06),
            bullet=rng.uniform(2.2, 3.6),
            shape=_harmonics(rng, (0.07, 0.04, 0.02)),
            twist=rng.uniform(-0.6, 0.6),
            rv_shape=((rng.uniform(0, 0.08), rng.uniform(-1, 1)), (rng.uniform(0.04, 0.14), rng.uniform(-0.5, 0.5))),
            apex_wall=rng.uniform(0.5, 0.95),
            unevenness=(rng.uniform(0, 0.45), rv_angle + rng.uniform(-1, 1)),
            papillary=tuple(
                (rv_angle + side * rng.uniform(1.6, 2.5), rng.uniform(0.55, 0.8), rng.uniform(3, 6)) for side in (-1, 1)
            ),
            wall_gain=rng.uniform(0, 0.24),
            inward=rng.uniform(1.3, 1.9) * fraction,
        )

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
    has_lv: np.ndarray  # [T, Z, 1, 1]: the slice is below the mitral valve
    has_rv: np.ndarray  # [T, Z, 1, 1]: the slice is below the valves of the RV
    edge: np.ndarray  # [T, Z, 1, 1]: blur of the outlines by a thick slice through a slanted wall

    def labels(self) -> np.ndarray:
        """Papillary muscles count as cavity, as in ACDC. Above its valves, no part of a ventricle is labelled."""
        labels = np.where((self.rv < 0) & self.has_rv, RV, 0).astype(np.uint8)
        labels[(self.wall < 0) & self.has_lv] = MYO
        labels[(self.cavity < 0) & self.has_lv] = LV
        labels[(self.wall < 0) & ~self.has_lv] = 0
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
    inner, outer, ratio, edge = _radii(heart, heights, curve)
    centre = (heart.centres(heights) + jitter).astype(np.float32)
    dx, dy = x - centre[:, 0, None, None], y - centre[:, 1, None, None]
    distance, angle = np.hypot(dx, dy), np.arctan2(dy, dx)
    outline = _outline(angle + heart.twist * (heights / heart.length)[:, None, None], heart.shape)
    cavity = distance - inner * outline
    uneven = 1 + heart.unevenness[0] * np.cos(angle - heart.unevenness[1])
    wall = distance - np.sqrt(inner**2 + (outer**2 - inner**2) * uneven) * outline
    rv = np.maximum(_rv_distance(heart, dx, dy, outer, ratio, curve), -wall)
    has_lv, has_rv = ((ratio <= valve)[:, :, None, None] for valve in (1, heart.rv_base))
    papillary = _papillary_distance(heart, dx, dy, inner, ratio)
    cavity, wall, rv = (array.astype(np.float32) for array in (cavity, wall, rv))
    return Beat(cavity, wall, rv, papillary, has_lv, has_rv, edge)


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
    """Inner and outer LV radius [T, Z, 1, 1], relative height of the tissue seen [T, Z], edge width [T, Z, 1, 1].

    The cavity is scaled so that the sum over the slices (as in voxel counting) follows the volume curve exactly. The
    ejection fraction of the labels is therefore the one that was drawn.
    """
    stretch = 1 / (1 - heart.shortening * curve[:, None])
    tissue = heights[None] * stretch  # end-diastolic height of the tissue that is now in the slice
    inner = heart.radius * half_ellipse(tissue, 0, heart.length, heart.bullet)
    shape = half_ellipse(tissue, -heart.apex_wall * heart.wall, heart.length, heart.bullet)
    taper = heart.apex_wall + (1 - heart.apex_wall) * np.sqrt(np.clip(tissue / heart.length, 0, 1))
    outer = np.maximum((heart.radius + heart.wall) * shape, 0)
    outer = np.where(inner > 0, np.minimum(outer, inner + heart.wall * taper), outer)
    inwards = heart.inward * heart.radius * (1 - np.sqrt(1 - heart.ejection_fraction * curve[:, None]))
    now = np.maximum(inner - inwards, 0)
    area = np.where(tissue <= heart.length, now**2, 0).sum(axis=1, keepdims=True)
    volume = area[:1] * (1 - heart.ejection_fraction * curve[:, None])
    now = now * np.sqrt(volume / area)
    gain = 1 + heart.wall_gain * curve[:, None]
    outer_now = np.sqrt(now**2 + np.maximum(outer**2 - inner**2, 0) * stretch * gain)
    slope = np.abs(np.gradient(now, axis=1)) if len(heights) > 1 else np.zeros_like(now)
    now, outer_now, edge = (a.astype(np.float32)[:, :, None, None] for a in (now, outer_now, np.clip(slope, 0, 6)))
    return now, outer_now, tissue / heart.length, edge


def _rv_distance(heart: Heart, dx, dy, outer: np.ndarray, ratio: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """Distance to the ellipse that the LV cuts to a crescent. It contracts mostly towards the septum."""
    size = np.clip((ratio - 0.05) / 0.95, 0, 1)[:, :, None, None].astype(np.float32) ** 0.55
    squeeze = np.float32(1 - 0.55 * heart.ejection_fraction * curve[:, None, None, None])
    reach = heart.rv_reach * size * squeeze
    along, across = np.float32(np.cos(heart.rv_angle)), np.float32(np.sin(heart.rv_angle))
    radial, tangential = dx * along + dy * across, dy * along - dx * across
    half_radial = 0.5 * outer + reach / 2 + 1e-3
    half_tangential = heart.rv_extent * outer * (0.35 + 0.65 * size) * (0.8 + 0.2 * squeeze) + 1e-3
    u, v = (radial - (0.5 * outer + reach / 2)) / half_radial, tangential / half_tangential
    bend = _outline(np.arctan2(tangential, radial - 0.5 * outer[:1]), heart.rv_shape)
    distance = (np.hypot(u, v) - bend) * np.sqrt(half_radial * half_tangential)
    return np.where(size > 0.2, distance, 1e3)


def _papillary_distance(heart: Heart, dx, dy, inner: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """The two muscles hang from the wall between a quarter and three quarters of the cavity's height.

    They get smaller with the cavity, so that a contracted one still contains blood.
    """
    nearest = np.full(np.broadcast_shapes(dx.shape, inner.shape), 1e3, dtype=np.float32)
    for angle, offset, size in heart.papillary:
        px, py = (np.float32(offset * part(angle)) * inner for part in (np.cos, np.sin))
        present = np.sqrt(np.clip(1 - ((ratio - 0.5) / 0.3) ** 2, 0, 1), dtype=np.float32)[:, :, None, None]
        present = present * np.minimum(np.float32(size), np.float32(0.3) * inner)
        np.minimum(nearest, np.hypot(dx - px, dy - py) - present, out=nearest, where=present > 0)
    return nearest
