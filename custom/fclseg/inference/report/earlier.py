"""An earlier exam of the same patient, for comparison."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fclseg.documents import read_json, understood
from fclseg.errors import DataError
from fclseg.inference.values import Value

MEASUREMENTS = "measurements.json"


@dataclass(frozen=True)
class Earlier:
    """The values of an exam by name, and the heading of their column."""

    title: str
    values: Mapping[str, float]

    def change(self, value: Value) -> str:
        """The earlier value and the difference to now: in points for percentages."""
        before = self.values.get(value.name)
        if before is None or not value.plausible:
            return "–"
        digits = 1 if value.unit.startswith("l/min") else 0
        unit = "points" if value.unit == "%" else value.unit
        change = round(value.number - before, digits) + 0.0  # never "-0"
        return f"{before:.{digits}f} {value.unit} ({change:+.{digits}f} {unit})"


def read_earlier(path: Path, patient: str) -> Earlier:
    """From the ``measurements.json`` of earlier results: the only patient, or the one with the same name."""
    file = path / MEASUREMENTS if path.is_dir() else path
    content = read_json(file)
    with understood(file, "give a folder of results or its measurements.json"):
        patients: dict[str, Any] = content["patients"]
        if len(patients) != 1 and patient not in patients:
            raise DataError(f"{file}: has {len(patients)} patients, none of them named {patient}; give one exam")
        chosen = patients[patient] if patient in patients else next(iter(patients.values()))
        numbers = {name.rpartition(", ")[0]: value for name, value in chosen["values"].items()}
        values = {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
        return Earlier(f"Earlier exam{' of ' + chosen['date'] if chosen.get('date') else ''} (change)", values)
