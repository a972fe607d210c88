"""A picture of all slices of a volume with the predicted outlines, for a quick visual check."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from fclseg.anatomy.base import Anatomy
from fclseg.finetune.inference import NOTICE
from fclseg.finetune.inference.measure import Measurement

MARGIN_MM = 25.0
ABOVE, BELOW = 0.72, 0.42
"""Inches for the words."""
GAP = 2
"""Pixels between two slices."""


def write_overlay(
    path: Path,
    voxels: np.ndarray,
    labels: np.ndarray,
    spacing: tuple[float, float, float],
    anatomy: Anatomy,
    measurement: Measurement,
) -> None:
    """Outlines on grey slices, cropped to the heart with a margin, in the order of the stack.

    All slices are drawn as one image: a set of axes per slice would take most of the time.
    """
    window = _window(labels, spacing)
    low, high = np.percentile(voxels, (1, 99.5))
    slices = labels.shape[2]
    grid = _grid(slices)
    grey, places = _mosaic(voxels[window], grid, low)
    classes, _ = _mosaic(labels[window], grid, 0)
    figure, axis = _canvas(slices, grid, grey.shape, spacing)
    extent = (0, grey.shape[0] * spacing[0], grey.shape[1] * spacing[1], 0)
    axis.imshow(grey.T, cmap="gray", vmin=low, vmax=high, extent=extent, interpolation="bilinear")
    _outline(axis, classes, anatomy, spacing)
    for number, (x, y) in enumerate(places, start=1):
        word = axis.text((x + 2) * spacing[0], (y + 2) * spacing[1], f"{number}", color="white", fontsize=9, va="top")
        word.set_path_effects([withStroke(linewidth=2, foreground="black")])
    _write_words(figure, anatomy, measurement)
    FigureCanvasAgg(figure).print_png(path, pil_kwargs={"compress_level": 1})  # the default takes half of the time


def _grid(slices: int) -> tuple[int, int]:
    """Columns and rows; the rows are evenly filled."""
    widest = max(6, math.ceil(math.sqrt(2 * slices)))
    rows = math.ceil(slices / widest)
    return math.ceil(slices / rows), rows


def _mosaic(stack: np.ndarray, grid: tuple[int, int], empty: float) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Slices [X, Y, S] side by side in one image, and the corner of each."""
    (columns, rows), (width, height, slices) = grid, stack.shape
    across, down = width + GAP, height + GAP
    picture = np.full((columns * across - GAP, rows * down - GAP), empty, dtype=stack.dtype)
    places = [(number % columns * across, number // columns * down) for number in range(slices)]
    for number, (x, y) in enumerate(places):
        picture[x : x + width, y : y + height] = stack[..., number]
    return picture, places


def _canvas(
    slices: int, grid: tuple[int, int], shape: tuple[int, ...], spacing: tuple[float, float, float]
) -> tuple[Figure, Axes]:
    """A figure whose one pair of axes has the proportions of the image, with room for the words around it."""
    width = (2.2 if slices <= 24 else 1.4) * grid[0]
    height = width * (shape[1] * spacing[1]) / (shape[0] * spacing[0])
    # A single slice still leaves room for the words above and below it.
    size = (max(width, 9.0), height + ABOVE + BELOW)
    figure = Figure(figsize=size, facecolor="#111111", dpi=120)
    axis = figure.add_axes((0.01, BELOW / size[1], 0.98, 1 - (ABOVE + BELOW) / size[1]))
    axis.axis("off")
    return figure, axis


def _window(labels: np.ndarray, spacing: tuple[float, float, float]) -> tuple[slice, slice]:
    """The in-plane box around all structures; the whole image if nothing was found."""
    box = []
    for axis in range(2):
        used = np.flatnonzero(labels.any(axis=(1 - axis, 2)))
        margin = round(MARGIN_MM / spacing[axis])
        size = labels.shape[axis]
        box.append(slice(max(0, used[0] - margin), min(size, used[-1] + 1 + margin)) if len(used) else slice(0, size))
    return box[0], box[1]


def _outline(axis, classes: np.ndarray, anatomy: Anatomy, spacing: tuple[float, float, float]) -> None:
    x = (np.arange(classes.shape[0]) + 0.5) * spacing[0]
    y = (np.arange(classes.shape[1]) + 0.5) * spacing[1]
    for structure in anatomy.structures:
        mask = classes == structure.value
        if mask.any() and min(mask.shape) > 1:
            axis.contour(x, y, mask.T.astype(float), levels=[0.5], colors=[structure.colour], linewidths=1.3)


def _write_words(figure: Figure, anatomy: Anatomy, measurement: Measurement) -> None:
    """Patient and measurements above the picture, colour legend and notice below it."""
    height = figure.get_figheight()
    phase = f"  ·  {measurement.phase}" if measurement.phase else ""
    amounts = "   ".join(f"{name} {value:.0f} ml" for name, value in measurement.ml.items())
    for name, value in measurement.g.items():
        amounts += f"   mass of the {anatomy.structure(name).title} {value:.0f} g"
    figure.text(
        0.015, 1 - 0.12 / height, measurement.patient + phase, color="white", fontsize=13, va="top", weight="bold"
    )
    figure.text(0.015, 1 - 0.42 / height, amounts, color="#dddddd", fontsize=10, va="top")
    if measurement.flags:
        figure.text(
            0.985, 1 - 0.12 / height, "; ".join(measurement.flags), color="#ffd166", fontsize=9, va="top", ha="right"
        )
    keys = [Line2D([], [], color=structure.colour, lw=2.5, label=structure.title) for structure in anatomy.structures]
    figure.legend(
        handles=keys, loc="lower left", ncols=len(keys), frameon=False, labelcolor="white", fontsize=9,
        bbox_to_anchor=(0.005, 0.0),
    )  # fmt: skip
    figure.text(0.985, 0.13 / height, NOTICE, color="#bbbbbb", fontsize=8, ha="right", va="bottom")
