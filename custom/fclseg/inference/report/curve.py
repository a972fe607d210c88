"""The volume of every cavity over the cycle, as SVG."""

from collections.abc import Sequence
from typing import Any

from fclseg.anatomy.base import Anatomy
from fclseg.inference.measure import Measurement, cavities

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 260, 46, 34, 26, 40
LINE_HEIGHT = 16
"""Words are above the plot (ED, ES) and to its right (the names of the curves), where no curve is."""


def volume_curve(volumes: Sequence[Measurement], anatomy: Anatomy) -> dict[str, Any] | None:
    """Points, ticks and marks of the chart; None if there is no cycle to show."""
    names = [one.structure for one in cavities(anatomy)]
    if len(volumes) < 4 or not names:
        return None
    top = max(10.0, max(one.ml[name] for one in volumes for name in names) * 1.08)

    def x(frame: float) -> float:
        return round(LEFT + frame * (WIDTH - LEFT - RIGHT) / (len(volumes) - 1), 1)

    def y(ml: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - ml / top), 1)

    step = next(step for step in (10, 20, 50, 100, 200, 500, 10000) if top / step <= 6)
    lines = [
        {
            "name": name,
            "colour": anatomy.structure(name).colour,
            "points": " ".join(f"{x(i)},{y(one.ml[name])}" for i, one in enumerate(volumes)),
            "end": (x(len(volumes) - 1), y(volumes[-1].ml[name])),
        }
        for name in names
    ]
    _spread(lines)
    return {
        "size": (WIDTH, HEIGHT),
        "lines": lines,
        "levels": [(y(level), level) for level in range(0, int(top) + 1, step)],
        "frames": [(x(i), i + 1) for i in range(0, len(volumes), max(1, len(volumes) // 8))],
        "marks": [(x(i), one.phase) for i, one in enumerate(volumes) if one.phase],
        "plot": (LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM),
    }


def _spread(lines: list[dict[str, Any]]) -> None:
    """Move the names of curves that end close together apart."""
    above = -float("inf")
    for line in sorted(lines, key=lambda line: line["end"][1]):
        x, y = line["end"]
        above = max(y, above + LINE_HEIGHT)
        line["label"] = (x + 6, above + 4)
