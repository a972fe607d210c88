"""Volumes in ml, myocardial mass in g and ejection fractions, by counting voxels."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fclseg.finetune.inference import NOTICE

MYOCARDIUM_G_PER_ML = 1.05
MYOCARDIUM = "MYO"
VENTRICLES = ("LV", "RV")


@dataclass
class Measurement:
    """One volume: millilitres by structure."""

    patient: str
    phase: str | None
    image: str
    ml: dict[str, float]
    remarks: list[str] = field(default_factory=list)

    @property
    def mass_g(self) -> float | None:
        return self.ml[MYOCARDIUM] * MYOCARDIUM_G_PER_ML if MYOCARDIUM in self.ml else None


def measure(
    labels: np.ndarray, voxel_mm3: float, structures: Sequence[str], *, patient: str, phase: str | None, image: str
) -> Measurement:
    """Count the voxels of every structure; 1000 mm3 are a millilitre."""
    count = np.bincount(labels.ravel(), minlength=len(structures) + 1)
    ml = {name: float(count[value]) * voxel_mm3 / 1000 for value, name in enumerate(structures, start=1)}
    remarks = [f"no {name} found" for name, value in ml.items() if value == 0]
    return Measurement(patient, phase, image, ml, remarks)


def ejection_fractions(measurements: Sequence[Measurement]) -> dict[str, float]:
    """100 (EDV - ESV) / EDV for each ventricle of one patient, when both phases are there."""
    phases = {measurement.phase: measurement for measurement in measurements}
    if not {"ED", "ES"} <= set(phases):
        return {}
    end_diastole, end_systole = phases["ED"].ml, phases["ES"].ml
    return {
        name: 100 * (end_diastole[name] - end_systole[name]) / end_diastole[name]
        for name in VENTRICLES
        if end_diastole.get(name, 0) > 0
    }


def by_patient(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    patients: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        patients.setdefault(measurement.patient, []).append(measurement)
    return patients


def table_rows(measurements: Sequence[Measurement]) -> list[dict]:
    """One row per volume; a patient's ejection fractions stand in each of its rows."""
    rows = []
    for patient, volumes in by_patient(measurements).items():
        fractions = ejection_fractions(volumes)
        growing = [f"{name} is larger at ES than at ED: check phases" for name, value in fractions.items() if value < 0]
        for volume in volumes:
            row = {"patient": patient, "phase": volume.phase, "image": volume.image}
            row |= {f"{name}_ml": round(value, 2) for name, value in volume.ml.items()}
            if volume.mass_g is not None:
                row["MYO_g"] = round(volume.mass_g, 2)
            if any(name in volume.ml for name in VENTRICLES):
                row |= {f"{name}_EF_percent": _rounded(fractions.get(name)) for name in VENTRICLES}
            rows.append(row | {"remarks": "; ".join(volume.remarks + growing), "notice": NOTICE})
    return rows


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def write_tables(folder: Path, measurements: Sequence[Measurement]) -> list[dict]:
    """``measurements.csv`` and ``measurements.json`` with the same rows, which are also returned."""
    rows = table_rows(measurements)
    with open(folder / "measurements.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    volumes = [{key: value for key, value in row.items() if key != "notice"} for row in rows]
    (folder / "measurements.json").write_text(json.dumps({"notice": NOTICE, "volumes": volumes}, indent=2))
    return rows
