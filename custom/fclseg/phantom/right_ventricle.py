"""The right ventricle: a crescent between the septum and its free wall, of a given volume and ejection fraction.

In a slice, the free wall is described by its distance from the LV's epicardium in each direction: none at the two
insertion points, most between them. Its scale follows from the area that the slice must have, so that the volume of the
RV, and with it the ejection fraction, is what was drawn.
"""

from dataclasses import dataclass

import numpy as np

VALVE_MOTION = (8.0, 26.0)
"""How far the tricuspid valve moves towards the apex, mm, if the RV has an ejection fraction of 60 %."""


@dataclass(frozen=True)
class Crescent:
    """Shape at end-diastole, and how it contracts."""

    volume: float  # mm³
    fraction: float  # ejection fraction
    base: float  # height of its valve, mm above the apex of the LV
    valve_motion: float  # mm towards the apex at end-systole
    start: float  # height of its own apex, as a fraction of the base
    growth: float  # exponent of the area from apex to base
    half_angle: float  # from the middle of the septum to the insertion points, radians
    roundness: float  # 2 is elliptical; more is fuller near the insertion points
    skew: float  # how much thicker it is on the anterior side, at the apex ...
    outflow: float  # ... and how much that grows towards the base, where the outflow tract begins

    @classmethod
    def draw(cls, rng: np.random.Generator, volume: float, fraction: float, length: float) -> "Crescent":
        base = length * rng.uniform(0.88, 1.01)
        half_angle = rng.uniform(0.85, 1.3) * np.clip((volume / 1.3e5) ** 0.25, 0.8, 1.35)
        return cls(
            volume=volume,
            fraction=fraction,
            base=base,
            valve_motion=min(rng.uniform(*VALVE_MOTION) * fraction / 0.6, 0.6 * fraction * base),
            start=rng.uniform(-0.05, 0.15),
            growth=rng.uniform(0.55, 1.2),
            half_angle=float(half_angle),
            roundness=rng.uniform(1.7, 3.0),
            skew=rng.uniform(-0.5, 0.3),
            outflow=rng.uniform(-0.1, 0.7),
        )


def crescent_distance(
    rv: Crescent,
    distance: np.ndarray,
    septal: np.ndarray,
    epicardium: np.ndarray,
    outer: np.ndarray,
    heights: np.ndarray,
    curve: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Signed distance [T, Z, X, Y] to the free wall, and how far [T, Z, 1, 1] the slices lie below the valve.

    ``distance`` and ``septal`` [Z, X, Y] are polar coordinates around the LV's centre, ``septal`` = 0 in the middle of
    the septum and positive on the anterior side. ``epicardium`` [T, Z, X, Y] is the LV's outer radius in the direction
    of each pixel and ``outer`` [T, Z, 1, 1] its mean.
    """
    valve = rv.base - rv.valve_motion * curve[:, None]
    level = np.clip(heights[None] / valve, 0, 1.15)  # relative height of the tissue in the slice
    grown = np.clip((level - rv.start) / (1 - rv.start), 0, 1)
    # The mean of the growth over the height turns the volume into the area at the base. What the valve's motion does
    # not eject, the free wall does.
    area_at_base = rv.volume * (1 + rv.growth) / ((1 - rv.start) * rv.base)
    squeeze = (1 - rv.fraction * curve) / (1 - rv.valve_motion * curve / rv.base)
    area = (area_at_base * grown**rv.growth * squeeze[:, None])[:, :, None, None]
    half_angle = np.float32(rv.half_angle) * (0.75 + 0.25 * grown[:, :, None, None]).astype(np.float32)
    u = np.clip(septal / half_angle, -1, 1)
    skew = (rv.skew + rv.outflow * grown**2)[:, :, None, None].astype(np.float32)
    profile = (1 - np.abs(u) ** np.float32(rv.roundness)) ** np.float32(0.6) * (1 + skew * u)
    mean, square = _moments(rv.roundness, skew)
    reach = (-outer * mean + np.sqrt((outer * mean) ** 2 + square * area / half_angle)) / square
    free_wall = distance - (epicardium + reach.astype(np.float32) * profile)
    beside = (np.abs(septal) - half_angle) * distance
    inside = np.maximum(free_wall, beside)
    return np.where(area > 60, inside, np.float32(1e3)), (valve - heights)[:, :, None, None]


def _moments(roundness: float, skew: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and mean square of the free wall's profile between the insertion points."""
    u = (np.arange(200) + 0.5) / 100 - 1
    even = (1 - np.abs(u) ** roundness) ** 0.6
    return even.mean() + 0 * skew, (even**2).mean() + skew**2 * (even**2 * u**2).mean()
