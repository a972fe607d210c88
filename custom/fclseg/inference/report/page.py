"""Write the pages from the results."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fclseg.anatomy.base import Anatomy
from fclseg.files import write_text
from fclseg.inference import NOTICE
from fclseg.inference.function import PatientResult
from fclseg.inference.measure import Measurement
from fclseg.inference.ranges import Judged, age_remark, judge, people
from fclseg.inference.report.curve import volume_curve
from fclseg.inference.report.earlier import Earlier
from fclseg.inference.report.provenance import Provenance
from fclseg.inference.values import PER_SURFACE, Value

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
    earlier: Earlier | None = None,
) -> Path:
    """``NAME_report.html``: values with normal ranges, flags, the curve, pictures and provenance."""
    judged = judge(result, anatomy)
    groups = _groups(result.values, judged, anatomy, earlier)
    rows = [row for group in groups for row in group["rows"]]
    content = {
        "result": result,
        "groups": groups,
        "people": people(result.body),
        "indexed": any(row["indexed"] for row in rows),
        "marked": any(row["outside"] or row["indexed_outside"] for row in rows),
        "cautions": cautions_of(row["value"] for row in rows),
        "sources": list(dict.fromkeys(one.normal.source for one in judged.values())),
        "age_remark": age_remark(result, judged),
        "earlier": earlier,
        "curve": volume_curve(result.volumes, anatomy),
        "pictures": [(path.stem.removesuffix("_overlay").replace("_", " "), _inline(path)) for path in pictures],
        "slices": _slices(result, anatomy),
        "anatomy": anatomy,
    }
    path = folder / f"{name}{ENDING}"
    write_text(path, _render("patient.html", provenance, images=_images(result), **content))
    return path


def write_index(
    folder: Path,
    results: Sequence[PatientResult],
    refused: Sequence[str],
    anatomy: Anatomy,
    provenance: Provenance,
    waiting: int = 0,
) -> None:
    """``index.html``: all patients, flagged ones first. While patients are ``waiting``, the page loads itself again."""
    order = sorted(results, key=lambda result: (not result.flags, result.patient))
    names = list(dict.fromkeys(value.name for result in order for value in result.values))
    columns = [name for name in names if name.endswith(KEY_FIGURES)] or names[:6]
    rows = [
        {"result": result, "link": f"{page_name(result.patient)}{ENDING}", "cells": [result.value(c) for c in columns]}
        for result in order
    ]
    flagged = sum(bool(result.flags) for result in results)
    values = [value for result in results for value in result.values]
    cautions = cautions_of(value for value in values if value.name in columns)
    content = {
        "rows": rows,
        "cautions": cautions,
        "starred": {name for names in cautions.values() for name in names},
        "columns": columns,
        "refused": refused,
        "flagged": flagged,
        "waiting": waiting,
        "anatomy": anatomy,
    }
    write_text(folder / INDEX, _render("index.html", provenance, images=[], **content))


def page_name(patient: str) -> str:
    """A patient's name in a form that a file name can start with."""
    return "".join(character if character.isalnum() or character in "-_." else "_" for character in patient)


def cautions_of(values: Iterable[Value]) -> dict[str, list[str]]:
    """Each caution once, with the values to which it applies."""
    cautions: dict[str, list[str]] = {}
    for value in values:
        if value.caution and value.name not in cautions.setdefault(value.caution, []):
            cautions[value.caution].append(value.name)
    return cautions


def _groups(
    values: Sequence[Value], judged: Mapping[str, Judged], anatomy: Anatomy, earlier: Earlier | None
) -> list[dict[str, Any]]:
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
        shown = [judged[one.name] for one in (value, indexed) if one is not None and one.name in judged]
        row = {"name": quantity.capitalize() if title else value.name, "value": value, "indexed": indexed}
        row |= {"ranges": [one.text for one in shown], "earlier": earlier.change(value) if earlier else ""}
        for prefix, one in (("", value), ("indexed_", indexed)):
            outside = judged[one.name].outside if one is not None and one.name in judged else ""
            bad = outside or (one is not None and not one.plausible)
            row |= {f"{prefix}classes": "bad" if bad else "number", f"{prefix}outside": f" {outside}" * bool(outside)}
        groups.setdefault(title, []).append(row)
    return [{"title": title, "rows": rows} for title, rows in groups.items()]


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
