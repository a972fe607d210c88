"""``measurements.csv`` and ``measurements.json``: one row per volume, and the function and flags of every patient."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fclseg.anatomy.base import Anatomy
from fclseg.files import whole_file, write_text
from fclseg.finetune.inference import NOTICE
from fclseg.finetune.inference.function import PatientResult
from fclseg.finetune.inference.measure import cavities
from fclseg.text import cell


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


def write_tables(folder: Path, results: Sequence[PatientResult], anatomy: Anatomy) -> None:
    rows = table_rows(results, anatomy)
    with whole_file(folder / "measurements.csv") as draft, open(draft, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows({key: cell(value) for key, value in row.items()} for row in rows)
    volumes = [{key: value for key, value in row.items() if key != "notice"} for row in rows]
    patients = {result.patient: patient_values(result) for result in results}
    content = {"notice": NOTICE, "volumes": volumes, "patients": patients}
    write_text(folder / "measurements.json", json.dumps(content, indent=2))


def patient_values(result: PatientResult) -> dict[str, Any]:
    """The function of one heart as plain values."""
    plain = {
        f"{value.name}, {value.unit}": round(value.number, 2) if value.plausible else f"not plausible: {value}"
        for value in result.values
    }
    return {"values": plain, "look_at": result.flags}
