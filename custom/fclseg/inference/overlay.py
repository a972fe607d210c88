"""A picture of all slices of a volume with the predicted outlines, for a quick visual check.

It is drawn as pixels, with matplotlib's renderer for the outlines alone: a figure takes three times as long.
"""

import math
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from contourpy import LineType, contour_generator
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.path import Path as Outline
from matplotlib.transforms import IdentityTransform
from PIL import Image, ImageDraw, ImageFont

from fclseg.anatomy.base import Anatomy
from fclseg.inference import NOTICE
from fclseg.inference.measure import Measurement

MARGIN_MM = 25.0
DPI = 120
ABOVE, BELOW, SIDE = 86, 50, 12
"""Pixels around the slices. The words are above and below them."""
LINE, GAP_BELOW_FLAGS = 22, 6
"""Height of a line of flags, and the distance of the slices from them."""
NARROWEST = 1080
"""Pixels. A single slice still leaves room for the words."""
GAP = 2
"""Voxels between two slices."""
BACKGROUND = "#111111"


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
    grid = _grid(slices)
    grey, places = _mosaic(voxels[window], grid, low)
    classes, _ = _mosaic(labels[window], grid, 0)
    bright = ((grey - low) / max(high - low, np.finfo(np.float32).tiny)).clip(0, 1)
    size = _size(slices, grid, grey.shape, spacing)
    shown = Image.fromarray((255 * bright.T).astype(np.uint8)).resize(size, Image.Resampling.BILINEAR)
    shown = _outlined(shown.convert("RGBA"), classes, anatomy)
    width = max(shown.width + 2 * SIDE, NARROWEST)
    flags = len(_wrapped("; ".join(measurement.flags), width - 2 * SIDE - 8))
    above = ABOVE + LINE * flags + (GAP_BELOW_FLAGS if flags else 0)
    picture = Image.new("RGB", (width, shown.height + above + BELOW), BACKGROUND)
    left = (width - shown.width) // 2
    picture.paste(shown, (left, above))
    draw = ImageDraw.Draw(picture)
    across, down = shown.width / grey.shape[0], shown.height / grey.shape[1]
    for number, (x, y) in enumerate(places, start=1):
        corner = (left + (x + 2) * across, above + (y + 2) * down)
        draw.text(corner, f"{number}", "white", _font(9), stroke_width=1, stroke_fill="black")
    _write_words(draw, picture.size, anatomy, measurement)
    picture.save(path, "PNG", compress_level=1)  # the default takes half of the time


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


def _size(
    slices: int, grid: tuple[int, int], shape: tuple[int, ...], spacing: tuple[float, float, float]
) -> tuple[int, int]:
    """Width and height of the slices in pixels, in the proportions of the heart."""
    width = (264 if slices <= 24 else 168) * grid[0]
    return width, max(1, round(width * (shape[1] * spacing[1]) / (shape[0] * spacing[0])))


def _window(labels: np.ndarray, spacing: tuple[float, float, float]) -> tuple[slice, slice]:
    """The in-plane box around all structures; the whole image if nothing was found."""
    box = []
    for axis in range(2):
        used = np.flatnonzero(labels.any(axis=(1 - axis, 2)))
        margin = round(MARGIN_MM / spacing[axis])
        size = labels.shape[axis]
        box.append(slice(max(0, used[0] - margin), min(size, used[-1] + 1 + margin)) if len(used) else slice(0, size))
    return box[0], box[1]


def _outlined(shown: Image.Image, classes: np.ndarray, anatomy: Anatomy) -> Image.Image:
    """A picture with the outlines of classes [X, Y], which cover all of it."""
    x, y = ((np.arange(count) + 0.5) * size / count for count, size in zip(classes.shape, shown.size, strict=True))
    renderer = RendererAgg(*shown.size, DPI)
    pen = renderer.new_gc()
    pen.set_linewidth(1.3)
    for structure in anatomy.structures:
        mask = classes == structure.value
        if not mask.any() or min(mask.shape) < 2:
            continue
        # The renderer's y axis points upwards.
        lines = contour_generator(x, shown.height - y, mask.T.astype(float), line_type=LineType.SeparateCode)
        pen.set_foreground(structure.colour)
        for points, codes in zip(*lines.lines(0.5), strict=True):
            renderer.draw_path(pen, Outline(points, codes), IdentityTransform())
    return Image.alpha_composite(shown, Image.fromarray(np.asarray(renderer.buffer_rgba())))


def _write_words(draw: ImageDraw.ImageDraw, size: tuple[int, int], anatomy: Anatomy, measurement: Measurement) -> None:
    """Patient and measurements above the picture, colour legend and notice below it."""
    width, height = size
    phase = f"  ·  {measurement.phase}" if measurement.phase else ""
    amounts = "   ".join(f"{name} {value:.0f} ml" for name, value in measurement.ml.items())
    for name, value in measurement.g.items():
        amounts += f"   mass of the {anatomy.structure(name).title} {value:.0f} g"
    draw.text((SIDE + 4, 10), measurement.patient + phase, "white", _font(13, bold=True))
    draw.text((SIDE + 4, 47), amounts, "#dddddd", _font(10))
    for line, text in enumerate(_wrapped("; ".join(measurement.flags), width - 2 * SIDE - 8)):
        draw.text((SIDE + 4, ABOVE + LINE * line), text, "#ffd166", _font(9))
    x, y = SIDE + 6, height - BELOW // 2 + 2
    for structure in anatomy.structures:
        draw.line([(x, y), (x + 32, y)], structure.colour, 4)
        draw.text((x + 44, y), structure.title, "white", _font(9), anchor="lm")
        x += 44 + round(_font(9).getlength(structure.title)) + 30
    draw.text((width - SIDE - 4, y), NOTICE, "#bbbbbb", _font(8), anchor="rm")


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of words that fit a width in pixels."""
    lines: list[str] = []
    for word in text.split():
        if lines and _font(9).getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


@cache
def _font(points: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """matplotlib brings its fonts along, so the words look the same on every machine."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(folder / name, points * DPI / 72, layout_engine=ImageFont.Layout.BASIC)
