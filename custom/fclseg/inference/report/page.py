"""Write the pages from the results."""

import base64
from collections.abc import Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fclseg.anatomy.base import Anatomy, Normal
from fclseg.files import write_text
from fclseg.inference import NOTICE
from fclseg.inference.function import PER_SURFACE, PatientResult, Value
from fclseg.inference.measure import Measurement
from fclseg.inference.report.curve import volume_curve
from fclseg.inference.report.provenance import Provenance

__all__ = ["INDEX", "KEY_FIGURES", "Provenance", "page_name", "write_index", "write_patient"]

INDEX = "index.html"
ENDING = "_report.html"
KEY_FIGURES = ("ejection fraction", "end-diastolic volume", " mass")
"""The values that index and terminal show for a patient with both phases; otherwise the index shows the first few."""


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
    groups = _groups(result.values, normals, anatomy)
    rows = [row for group in groups for row in group["rows"]]
    shown = [normals[value.name] for value in result.values if value.name in normals]
    content = {
        "result": result,
        "groups": groups,
        "indexed": any(row["indexed"] for row in rows),
        "cautions": [(row["value"].name, row["value"].caution) for row in rows if row["value"].caution],
        "sources": list(dict.fromkeys(normal.source for normal in shown)),
        "curve": volume_curve(result.volumes, anatomy),
        "pictures": [(path.stem.removesuffix("_overlay").replace("_", " "), _inline(path)) for path in pictures],
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
    values = [value for result in results for value in result.values]
    cautions = {value.name: value.caution for value in values if value.caution and value.name in columns}
    content = {
        "rows": rows,
        "cautions": cautions,
        "columns": columns,
        "refused": refused,
        "flagged": flagged,
        "anatomy": anatomy,
    }
    write_text(folder / INDEX, _render("index.html", provenance, images=[], **content))


def page_name(patient: str) -> str:
    """A patient's name in a form that a file name can start with."""
    return "".join(character if character.isalnum() or character in "-_." else "_" for character in patient)


def _groups(values: Sequence[Value], normals: dict[str, Normal], anatomy: Anatomy) -> list[dict[str, Any]]:
    """The values by structure, with the value per body surface in the same row."""
    known = {value.name: value for value in values}
    titles = {one.name: f"{one.title[0].upper()}{one.title[1:]} ({one.name})" for one in anatomy.structures}
    groups: dict[str, list[dict[str, Any]]] = {}
    for value in values:
        if value.name.endswith(PER_SURFACE):
            continue
        structure, _, quantity = value.name.partition(" ")
        title = titles.get(structure, "")
        indexed = known.get(value.name + PER_SURFACE)
        ranges = [_range(one, normals[one.name]) for one in (value, indexed) if one is not None and one.name in normals]
        row = {"name": quantity.capitalize() if title else value.name, "value": value, "indexed": indexed}
        groups.setdefault(title, []).append(row | {"ranges": ranges})
    return [{"title": title, "rows": rows} for title, rows in groups.items()]


def _range(value: Value, normal: Normal) -> str:
    men, women = (f"{mean - 2 * sd:g}–{mean + 2 * sd:g}" for mean, sd in (normal.men, normal.women))
    return f"men {men}, women {women} {value.unit}"


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


@cache
def _environment() -> Environment:
    """Compiles each template once."""
    loader = PackageLoader("fclseg.inference.report", ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined)


def _render(template: str, provenance: Provenance, **content: Any) -> str:
    today = date.today().isoformat()
    return _environment().get_template(template).render(provenance=provenance, notice=NOTICE, today=today, **content)
