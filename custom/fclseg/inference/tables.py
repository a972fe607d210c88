"""Tables of the results: ``patients.csv``, ``measurements.csv`` (per volume), ``slices.csv``; all in one JSON file."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fclseg.anatomy.base import Anatomy
from fclseg.dicom.codes import quantity_code, unit_code
from fclseg.files import whole_file, write_text
from fclseg.inference import NOTICE
from fclseg.inference.function import PatientResult
from fclseg.inference.measure import cavities
from fclseg.inference.ranges import judge
from fclseg.text import cell

LAST = ("look_at", "notice")


def table_rows(results: Sequence[PatientResult], anatomy: Anatomy) -> list[dict[str, Any]]:
    """Every row has its patient's ejection fractions. Implausible ones are left out and flagged."""
    rows = []
    for result in results:
        fractions = {one.structure: result.value(f"{one.structure} ejection fraction") for one in cavities(anatomy)}
        for volume in result.volumes:
            row: dict[str, Any] = {"patient": result.patient, "phase": volume.phase, "frame": volume.frame}
            row |= {"image": volume.image}
            row |= {f"{name}_ml": round(value, 2) for name, value in volume.ml.items()}
            row |= {f"{name}_g": round(value, 2) for name, value in volume.g.items()}
            for name, value in fractions.items():
                row[f"{name}_EF_percent"] = round(value.number, 1) if value is not None and value.plausible else None
            row |= {"look_at": "; ".join(dict.fromkeys(volume.flags + result.flags)), "notice": NOTICE}
            rows.append(row)
    return rows


def patient_rows(results: Sequence[PatientResult]) -> list[dict[str, Any]]:
    """One row per patient, with all values. Implausible ones are left out and flagged."""
    rows = []
    for result in results:
        row: dict[str, Any] = {"patient": result.patient}
        row |= {
            f"{value.name}, {value.unit}": round(value.number, 2) if value.plausible else None
            for value in result.values
        }
        for value in result.values:
            if value.interval is not None:
                ends = zip(("low", "high"), value.interval, strict=True)
                row |= {f"{value.name}, {value.unit}, {end}": round(number, 2) for end, number in ends}
        rows.append(row | {"look_at": "; ".join(result.flags), "notice": NOTICE})
    return rows


def slice_rows(results: Sequence[PatientResult]) -> list[dict[str, Any]]:
    """One row per slice of every volume, counted from the base as in the pictures."""
    rows = []
    for result in results:
        for volume in result.volumes:
            who = {"patient": result.patient, "phase": volume.phase, "frame": volume.frame, "image": volume.image}
            for number, amounts in enumerate(zip(*volume.slices_ml.values(), strict=True), start=1):
                ml = {f"{name}_ml": round(ml, 3) for name, ml in zip(volume.slices_ml, amounts, strict=True)}
                rows.append(who | {"slice": number} | ml)
    return rows


def write_tables(folder: Path, results: Sequence[PatientResult], anatomy: Anatomy) -> None:
    rows = table_rows(results, anatomy)
    _write(folder / "measurements.csv", rows)
    _write(folder / "patients.csv", patient_rows(results))
    _write(folder / "slices.csv", slice_rows(results))
    volumes = [{key: value for key, value in row.items() if key != "notice"} for row in rows]
    per_slice = [volume.slices_ml for result in results for volume in result.volumes]
    for volume, slices_ml in zip(volumes, per_slice, strict=True):
        volume["slices_ml"] = {name: [round(ml, 3) for ml in amounts] for name, amounts in slices_ml.items()}
    patients = {result.patient: patient_values(result, anatomy) for result in results}
    content = {"notice": NOTICE, "volumes": volumes, "patients": patients}
    write_text(folder / "measurements.json", json.dumps(content, indent=2))


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A CSV file with the columns of all rows. Patients may have different values, such as known body surfaces."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    columns.sort(key=lambda name: name in LAST)
    with whole_file(path) as draft, open(draft, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=columns)
        writer.writeheader()
        writer.writerows({key: cell(value) for key, value in row.items()} for row in rows)


def patient_values(result: PatientResult, anatomy: Anatomy) -> dict[str, Any]:
    """The function of one heart as plain values."""
    plain = {
        f"{value.name}, {value.unit}": round(value.number, 2) if value.plausible else f"not plausible: {value}"
        for value in result.values
    }
    sure = {
        "intervals": {
            value.name: [round(end, 2) for end in value.interval] for value in result.values if value.interval
        },
        "predicted_dice": {name: round(dice, 3) for name, dice in result.predicted_dice.items()},
        "risk": None if result.risk is None else round(result.risk, 3),
        "remarks": result.remarks,
    }
    return {"values": plain, "coded": _coded(result, anatomy), "look_at": result.flags, "notes": result.notes} | sure


def _coded(result: PatientResult, anatomy: Anatomy) -> list[dict[str, Any]]:
    """The plausible values with their codes, UCUM units and normal ranges, for databases."""
    judged = judge(result, anatomy)
    rows = []
    for value in result.values:
        if value.plausible:
            code, scheme, meaning = quantity_code(value.name)
            row = {"name": value.name, "value": round(value.number, 2), "unit": unit_code(value.unit)[0]}
            row |= {"code": code, "scheme": scheme, "meaning": meaning}
            if (one := judged.get(value.name)) is not None:
                row |= {"normal": one.text, "source": one.normal.source, "outside": one.outside}
            rows.append(row)
    return rows
