"""The report of one patient as a PDF of A4 pages: values and flags first, then the curve and the outlines."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_pdf import FigureCanvasPdf, PdfPages
from matplotlib.figure import Figure
from PIL import Image

from fclseg.anatomy.base import Anatomy
from fclseg.files import whole_file
from fclseg.inference import NOTICE
from fclseg.inference.function import PatientResult
from fclseg.inference.measure import cavities
from fclseg.inference.ranges import age_remark, judge, people
from fclseg.inference.report.earlier import Earlier
from fclseg.inference.report.provenance import Provenance
from fclseg.inference.values import PER_SURFACE

A4 = (8.27, 11.69)
LEFT, TOP, LINE, WIDTH = 0.08, 0.95, 0.0155, 105
"""Margins and line height as fractions of the page, and the characters of a line."""
WARN = "#9a3412"
FIXED = {"Creator": "FCLSeg", "CreationDate": None}
"""The same result must give the same file, so that it is not sent twice."""


def write_pdf(
    folder: Path,
    name: str,
    result: PatientResult,
    pictures: Sequence[Path],
    anatomy: Anatomy,
    provenance: Provenance,
    earlier: Earlier | None = None,
) -> Path:
    """``NAME_report.pdf``"""
    path = folder / f"{name}_report.pdf"
    with whole_file(path) as draft, PdfPages(draft, metadata=FIXED) as pages:
        for figure in (_values_page(result, anatomy, provenance, earlier), _pictures_page(result, pictures, anatomy)):
            FigureCanvasPdf(figure)
            pages.savefig(figure)
    return path


class _Lines:
    """Lines of text from the top of a page."""

    def __init__(self, figure: Figure):
        self.figure, self.y = figure, TOP

    def add(self, text: str, size: float = 8.5, **style: Any) -> None:
        for line in textwrap.wrap(text, WIDTH) or [""]:
            self.figure.text(LEFT, self.y, line, fontsize=size, va="top", **style)
            self.y -= LINE * size / 8.5

    def row(self, cells: Sequence[str], places: Sequence[float], colours: Sequence[str], **style: Any) -> None:
        for text, x, colour in zip(cells, places, colours, strict=True):
            self.figure.text(x, self.y, text, fontsize=8.5, va="top", color=colour, **style)
        self.y -= LINE * 1.1


def _values_page(result: PatientResult, anatomy: Anatomy, provenance: Provenance, earlier: Earlier | None) -> Figure:
    figure = Figure(figsize=A4)
    page = _Lines(figure)
    page.add(result.patient, 14, weight="bold")
    page.add(f"{anatomy.title[0].upper()}{anatomy.title[1:]}. {NOTICE}", color=WARN)
    if result.flags:
        page.add("Check this before you use any value:", 10, weight="bold", color=WARN)
        for flag in result.flags:
            page.add(f"- {flag}", color=WARN)
    page.y -= LINE
    judged = judge(result, anatomy)
    places = (LEFT, 0.32, 0.56, 0.72) if earlier else (LEFT, 0.34, 0.60, 0.60)
    page.row(("Quantity", "Value", "Earlier (change)" if earlier else "", f"Healthy {people(result.body)}"),
             places, ("black",) * 4, weight="bold")  # fmt: skip
    for value in result.values:
        one = judged.get(value.name)
        mark = f"  {one.outside}" if one is not None and one.outside else ""
        bad = WARN if mark or not value.plausible else "black"
        cells = (
            value.name.replace(PER_SURFACE, " / BSA") + (" *" if value.caution else ""),
            f"{value}{mark}",
            earlier.change(value) if earlier else "",
            one.text if one is not None else "",
        )
        page.row(cells, places, ("black", bad, "black", "#57606a"))
    page.y -= LINE
    dated = earlier is not None and " of " in earlier.title
    for text in (earlier.title if earlier and dated else "", result.about_intervals, *_about_body(result)):
        if text:
            page.add(text)
    for text in dict.fromkeys(f"* {value.caution}" for value in result.values if value.caution):
        page.add(text)
    if any(one.outside for one in judged.values()):
        page.add(f"low, high: outside of the range of healthy {people(result.body)}")
    sources = dict.fromkeys(f"Healthy {people(result.body)}: {one.normal.source}" for one in judged.values())
    for text in [*sources, age_remark(result, judged)]:
        page.add(text, 7.5, color="#57606a")
    for note in result.notes:
        page.add(f"About the images: {note}")
    page.add(f"FCLSeg {provenance.version}, {provenance.model}, SHA-256 {provenance.digest}", 7.5, color="#57606a")
    return figure


def _about_body(result: PatientResult) -> list[str]:
    """What indexed values and the output were computed with."""
    surface, rate = result.body.surface_m2, result.body.heart_rate
    texts = [] if surface is None else [f"Body surface area (BSA): {surface:.2f} m² (Mosteller's formula)"]
    return texts if rate is None else [*texts, f"Heart rate: {rate:.0f} beats per minute"]


def _pictures_page(result: PatientResult, pictures: Sequence[Path], anatomy: Anatomy) -> Figure:
    figure = Figure(figsize=A4)
    names = [one.structure for one in cavities(anatomy)]
    top = 0.96
    if names and len(result.volumes) >= 4:
        axes = figure.add_axes((0.1, 0.78, 0.82, 0.17))
        for name in names:
            amounts = [one.ml[name] for one in result.volumes]
            colour = anatomy.structure(name).colour
            axes.plot(range(1, len(amounts) + 1), amounts, "o-", ms=2.5, color=colour, label=name)
        axes.legend(fontsize=8)
        axes.set_xlabel("frame", fontsize=8)
        axes.set_ylabel("ml", fontsize=8)
        top = 0.73
    shown = pictures[:2]
    for path in shown:
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
        # As wide as the page, unless two pictures of many slices would not fit below each other.
        height = min(0.88 * A4[0] / A4[1] * picture.height / picture.width, top / len(shown) - 0.02)
        axes = figure.add_axes((0.06, top - height, 0.88, height))
        axes.imshow(picture)
        axes.axis("off")
        top -= height + 0.02
    return figure
