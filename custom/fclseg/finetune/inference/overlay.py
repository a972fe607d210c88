"""A picture of all slices of a volume with the predicted outlines, for a quick visual check."""

import math
from pathlib import Path

import numpy as np
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


def write_overlay(
    path: Path,
    voxels: np.ndarray,
    labels: np.ndarray,
    spacing: tuple[float, float, float],
    anatomy: Anatomy,
    measurement: Measurement,
) -> None:
    """Outlines on grey slices, cropped to the heart with a margin, in the order of the stack."""
    window = _window(labels, spacing)
    low, high = np.percentile(voxels, (1, 99.5))
    slices = labels.shape[2]
    figure, axes = _panels(slices, labels[window].shape, spacing)
    for axis in axes:
        axis.axis("off")
    for number, axis in zip(range(slices), axes, strict=False):
        grey, classes = voxels[..., number][window], labels[..., number][window]
        extent = (0, grey.shape[0] * spacing[0], grey.shape[1] * spacing[1], 0)
        axis.imshow(grey.T, cmap="gray", vmin=low, vmax=high, extent=extent, interpolation="bilinear")
        _outline(axis, classes, anatomy, spacing)
        word = axis.text(0.03, 0.97, f"{number + 1}", color="white", fontsize=9, va="top", transform=axis.transAxes)
        word.set_path_effects([withStroke(linewidth=2, foreground="black")])
    _write_words(figure, anatomy, measurement)
    FigureCanvasAgg(figure).print_png(path)


def _panels(slices: int, shape: tuple[int, ...], spacing: tuple[float, float, float]) -> tuple[Figure, np.ndarray]:
    """A grid of evenly filled rows whose panels have the aspect ratio of the images."""
    widest = max(6, math.ceil(math.sqrt(2 * slices)))
    rows = math.ceil(slices / widest)
    columns = math.ceil(slices / rows)
    width = 2.2 if slices <= 24 else 1.4
    height = width * (shape[1] * spacing[1]) / (shape[0] * spacing[0])
    # A single slice still leaves room for the text above and below it.
    size = (max(width * columns, 9.0), height * rows + ABOVE + BELOW)
    figure = Figure(figsize=size, facecolor="#111111", dpi=120)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    figure.subplots_adjust(0.01, BELOW / size[1], 0.99, 1 - ABOVE / size[1], wspace=0.03, hspace=0.03)
    return figure, axes


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
