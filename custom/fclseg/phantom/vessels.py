"""What lies above the valves: left atrium, root of the aorta, right atrium and pulmonary trunk.

They are bright with thin walls, touch each other, and are not labelled.
"""

from typing import Any

import numpy as np

from fclseg.phantom.heart import Heart
from fclseg.phantom.plane import Plane

Vessel = tuple[np.ndarray, float]
"""Signed distance [Z, X, Y] and thickness of the wall, mm."""


def draw_vessels(rng: np.random.Generator, plane: Plane, heart: Heart) -> tuple[list[Vessel], list[Vessel]]:
    """Those that continue the RV, and those that continue the LV, in the order in which they are painted.

    Angles are measured from the direction of the RV, positive on the anterior side.
    """
    outer = heart.radius + heart.wall
    right = [  # angle, distance from the LV's centre, half axes
        (-rng.uniform(0.1, 1.1), outer + rng.uniform(0, 14), rng.uniform(14, 28, 2)),  # right atrium
        (rng.uniform(0.4, 1.4), outer + rng.uniform(-6, 8), rng.uniform(10, 18, 2)),  # outflow tract, pulmonary trunk
    ]
    left = [
        (np.pi + rng.uniform(-0.9, 0.9), rng.uniform(0, 0.45) * outer, rng.uniform(15, 30, 2)),  # left atrium
        (
            rng.uniform(-0.2, 0.7),
            rng.uniform(0.45, 0.9) * outer,
            rng.uniform(11, 17) * rng.uniform(0.9, 1.1, 2),
        ),  # aorta
    ]
    return _placed(rng, plane, heart, right), _placed(rng, plane, heart, left)


def _placed(rng: np.random.Generator, plane: Plane, heart: Heart, chambers: list[Any]) -> list[Vessel]:
    lift = (plane.heights - heart.length)[:, None, None]
    x, y = heart.centres(plane.heights).T[:, :, None, None]
    found = []
    for angle, away, half in chambers:
        bend, grow = rng.uniform(-0.4, 0.4, 2), rng.uniform(-0.2, 0.3)
        direction = heart.rv_angle + angle
        centre = (x + away * np.cos(direction) + bend[0] * lift, y + away * np.sin(direction) + bend[1] * lift)
        sizes = tuple(np.maximum(side + grow * lift, 5) for side in half)
        distance = plane.ellipse(centre, sizes, rng.uniform(0, np.pi))
        found.append((distance.astype(np.float32), rng.uniform(0.8, 4.0)))
    return found
