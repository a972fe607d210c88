"""A picture of all slices of a volume with the outlines that were found, for a quick check by eye."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fclseg.finetune.inference import NOTICE
from fclseg.finetune.inference.measure import Measurement

COLOURS = {"RV": "#4cc9f0", "MYO": "#7ae582", "LV": "#ff5d5d", "BP": "#ff5d5d"}
"""Told apart by brightness too, for readers who do not see all colours."""
MARGIN_MM = 25.0
COLUMNS = 6


def write_overlay(
    path: Path,
    voxels: np.ndarray,
    labels: np.ndarray,
    spacing: tuple[float, float, float],
    structures: Sequence[str],
    measurement: Measurement,
) -> None:
    """Outlines on grey slices, cropped to the heart with a margin, in the order of the stack."""
    window = _window(labels, spacing)
    low, high = np.percentile(voxels, (1, 99.5))
    slices = labels.shape[2]
    columns = min(COLUMNS, slices)
    rows = math.ceil(slices / columns)
    figure = Figure(figsize=(2.2 * columns + 0.3, 2.2 * rows + 1.35), facecolor="#111111", dpi=120)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.axis("off")
    for number, axis in zip(range(slices), axes, strict=False):
        grey, classes = voxels[..., number][window], labels[..., number][window]
        extent = (0, grey.shape[0] * spacing[0], grey.shape[1] * spacing[1], 0)
        axis.imshow(grey.T, cmap="gray", vmin=low, vmax=high, extent=extent, interpolation="bilinear")
        _outline(axis, classes, structures, spacing)
        axis.text(0.03, 0.97, f"{number + 1}", color="white", fontsize=9, va="top", transform=axis.transAxes)
    _write_words(figure, structures, measurement, rows)
    FigureCanvasAgg(figure).print_png(path)


def _window(labels: np.ndarray, spacing: tuple[float, float, float]) -> tuple[slice, slice]:
    """The in-plane box around everything that was found; the whole image when nothing was."""
    box = []
    for axis in range(2):
        used = np.flatnonzero(labels.any(axis=(1 - axis, 2)))
        margin = round(MARGIN_MM / spacing[axis])
        size = labels.shape[axis]
        box.append(slice(max(0, used[0] - margin), min(size, used[-1] + 1 + margin)) if len(used) else slice(0, size))
    return box[0], box[1]


def _outline(axis, classes: np.ndarray, structures: Sequence[str], spacing: tuple[float, float, float]) -> None:
    x = (np.arange(classes.shape[0]) + 0.5) * spacing[0]
    y = (np.arange(classes.shape[1]) + 0.5) * spacing[1]
    for value, name in enumerate(structures, start=1):
        mask = classes == value
        if mask.any() and min(mask.shape) > 1:
            axis.contour(x, y, mask.T.astype(float), levels=[0.5], colors=[COLOURS.get(name, "yellow")], linewidths=1.3)


def _write_words(figure: Figure, structures: Sequence[str], measurement: Measurement, rows: int) -> None:
    """Who and how much above, the key to the colours and the notice below."""
    height = figure.get_figheight()
    phase = f"  ·  {measurement.phase}" if measurement.phase else ""
    amounts = "   ".join(f"{name} {value:.0f} ml" for name, value in measurement.ml.items())
    if measurement.mass_g is not None:
        amounts += f"   myocardial mass {measurement.mass_g:.0f} g"
    figure.text(
        0.015, 1 - 0.12 / height, measurement.patient + phase, color="white", fontsize=13, va="top", weight="bold"
    )
    figure.text(0.015, 1 - 0.42 / height, amounts, color="#dddddd", fontsize=10, va="top")
    if measurement.remarks:
        figure.text(
            0.985, 1 - 0.12 / height, "; ".join(measurement.remarks), color="#ffd166", fontsize=9, va="top", ha="right"
        )
    keys = [Line2D([], [], color=COLOURS.get(name, "yellow"), lw=2.5, label=name) for name in structures]
    figure.legend(
        handles=keys, loc="lower left", ncols=len(keys), frameon=False, labelcolor="white", fontsize=9,
        bbox_to_anchor=(0.005, 0.0),
    )  # fmt: skip
    figure.text(0.985, 0.13 / height, NOTICE, color="#bbbbbb", fontsize=8, ha="right", va="bottom")
    figure.subplots_adjust(0.01, 0.42 / height, 0.99, 1 - 0.72 / height, wspace=0.04, hspace=0.04)
