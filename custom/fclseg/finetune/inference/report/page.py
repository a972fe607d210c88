"""Write the pages from the results."""

import base64
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fclseg.anatomy.base import Anatomy, Normal
from fclseg.files import write_text
from fclseg.finetune.inference import NOTICE
from fclseg.finetune.inference.function import PatientResult, Value
from fclseg.finetune.inference.measure import Measurement
from fclseg.finetune.inference.report.curve import volume_curve
from fclseg.finetune.inference.report.provenance import Provenance

__all__ = ["INDEX", "Provenance", "page_name", "write_index", "write_patient"]

INDEX = "index.html"
ENDING = "_report.html"
KEY_FIGURES = ("ejection fraction", "end-diastolic volume", " mass")
"""The values that the index shows for a patient with both phases; otherwise it shows the first few values."""


def write_patient(
    folder: Path,
    name: str,
    result: PatientResult,
    pictures: Sequence[Path],
    anatomy: Anatomy,
    provenance: Provenance,
) -> Path:
    """``NAME_report.html``: values with normal ranges, flags, the curve, pictures and provenance."""
    normals = {normal.quantity: normal for normal in anatomy.normals}
    rows = [_row(value, normals.get(value.name)) for value in result.values]
    sources = list(dict.fromkeys(row["source"] for row in rows if row["source"]))
    content = {
        "result": result,
        "rows": rows,
        "sources": sources,
        "curve": volume_curve(result.volumes, anatomy),
        "pictures": [(path.stem.removesuffix("_overlay"), _inline(path)) for path in pictures],
        "slices": _slices(result, anatomy),
        "anatomy": anatomy,
    }
    path = folder / f"{name}{ENDING}"
    write_text(path, _render("patient.html", provenance, images=_images(result), **content))
    return path


def write_index(
    folder: Path, results: Sequence[PatientResult], refused: Sequence[str], anatomy: Anatomy, provenance: Provenance
) -> None:
    """``index.html``: all patients, flagged ones first."""
    order = sorted(results, key=lambda result: (not result.flags, result.patient))
    names = list(dict.fromkeys(value.name for result in order for value in result.values))
    columns = [name for name in names if name.endswith(KEY_FIGURES)] or names[:6]
    rows = [
        {"result": result, "link": f"{page_name(result.patient)}{ENDING}", "cells": [result.value(c) for c in columns]}
        for result in order
    ]
    flagged = sum(bool(result.flags) for result in results)
    content = {"rows": rows, "columns": columns, "refused": refused, "flagged": flagged, "anatomy": anatomy}
    write_text(folder / INDEX, _render("index.html", provenance, images=[], **content))


def page_name(patient: str) -> str:
    """A patient's name in a form that a file name can start with."""
    return "".join(character if character.isalnum() or character in "-_." else "_" for character in patient)


def _row(value: Value, normal: Normal | None) -> dict[str, Any]:
    ranges = {} if normal is None else {"men": normal.men, "women": normal.women}
    words = ", ".join(f"{mean - 2 * sd:g} to {mean + 2 * sd:g} ({who})" for who, (mean, sd) in ranges.items())
    return {"value": value, "normal": words, "source": normal.source if normal else ""}


def _images(result: PatientResult) -> list[str]:
    """The files of a patient, with what was read from them."""
    frames: dict[str, list[Measurement]] = {}
    for one in result.volumes:
        frames.setdefault(one.image, []).append(one)
    lines = []
    for name, volumes in frames.items():
        slices = len(next(iter(volumes[0].slices_ml.values()), ()))
        voxel = " × ".join(f"{size:.3g}" for size in volumes[0].voxel_mm)
        count = f"{len(volumes)} frames of " if len(volumes) > 1 else ""
        lines.append(f"{name}: {count}{slices} slices, voxels of {voxel} mm")
    return lines


def _slices(result: PatientResult, anatomy: Anatomy) -> list[dict[str, Any]]:
    """Volumes per slice at ED and ES, first slice first."""
    return [
        {
            "title": one.phase or one.image,
            "names": anatomy.names,
            "rows": list(zip(*one.slices_ml.values(), strict=True)),
        }
        for one in list(result.phases.values()) or result.volumes[:2]
    ]


def _inline(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()


def _render(template: str, provenance: Provenance, **content: Any) -> str:
    environment = Environment(
        loader=PackageLoader("fclseg.finetune.inference.report", "."), autoescape=True, undefined=StrictUndefined
    )
    today = date.today().isoformat()
    return environment.get_template(template).render(provenance=provenance, notice=NOTICE, today=today, **content)
