"""Volumes in ml, myocardial mass in g and ejection fractions, by counting voxels."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fclseg.anatomy.base import Anatomy, EjectionFraction, Mass
from fclseg.finetune.inference import NOTICE
from fclseg.text import cell


@dataclass
class Measurement:
    """One volume: millilitres and, where the anatomy says so, grams by structure."""

    patient: str
    phase: str | None
    image: str
    ml: dict[str, float]
    g: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def measure(
    labels: np.ndarray, voxel_mm3: float, anatomy: Anatomy, *, patient: str, phase: str | None, image: str
) -> Measurement:
    """Count the voxels of every structure; 1000 mm3 are a millilitre."""
    count = np.bincount(labels.ravel(), minlength=anatomy.classes)
    ml = {one.name: float(count[one.value]) * voxel_mm3 / 1000 for one in anatomy.structures}
    masses = [one for one in anatomy.measurements if isinstance(one, Mass)]
    g = {one.structure: ml[one.structure] * one.g_per_ml for one in masses}
    remarks = [f"no {name} found" for name, value in ml.items() if value == 0]
    return Measurement(patient, phase, image, ml, g, remarks)


def cavities(anatomy: Anatomy) -> list[str]:
    """The structures that have an ejection fraction."""
    return [one.structure for one in anatomy.measurements if isinstance(one, EjectionFraction)]


def ejection_fractions(measurements: Sequence[Measurement], anatomy: Anatomy) -> dict[str, float]:
    """100 (EDV - ESV) / EDV for each cavity of one patient, when both phases are there."""
    phases = {measurement.phase: measurement for measurement in measurements}
    if not {"ED", "ES"} <= set(phases):
        return {}
    end_diastole, end_systole = phases["ED"].ml, phases["ES"].ml
    return {
        name: 100 * (end_diastole[name] - end_systole[name]) / end_diastole[name]
        for name in cavities(anatomy)
        if end_diastole.get(name, 0) > 0
    }


def by_patient(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    patients: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        patients.setdefault(measurement.patient, []).append(measurement)
    return patients


def table_rows(measurements: Sequence[Measurement], anatomy: Anatomy) -> list[dict]:
    """One row per volume; a patient's ejection fractions stand in each of its rows."""
    rows = []
    for patient, volumes in by_patient(measurements).items():
        fractions = ejection_fractions(volumes, anatomy)
        growing = [f"{name} is larger at ES than at ED: check phases" for name, value in fractions.items() if value < 0]
        for volume in volumes:
            row = {"patient": patient, "phase": volume.phase, "image": volume.image}
            row |= {f"{name}_ml": round(value, 2) for name, value in volume.ml.items()}
            row |= {f"{name}_g": round(value, 2) for name, value in volume.g.items()}
            row |= {f"{name}_EF_percent": _rounded(fractions.get(name)) for name in cavities(anatomy)}
            rows.append(row | {"remarks": "; ".join(volume.remarks + growing), "notice": NOTICE})
    return rows


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def write_tables(folder: Path, measurements: Sequence[Measurement], anatomy: Anatomy) -> list[dict]:
    """``measurements.csv`` and ``measurements.json`` with the same rows, which are also returned."""
    rows = table_rows(measurements, anatomy)
    with open(folder / "measurements.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    volumes = [{key: value for key, value in row.items() if key != "notice"} for row in rows]
    (folder / "measurements.json").write_text(json.dumps({"notice": NOTICE, "volumes": volumes}, indent=2))
    return rows
