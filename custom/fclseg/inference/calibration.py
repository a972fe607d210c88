"""What labelled patients say about results of one model: predicted Dice, intervals, and when a result is flagged.

A calibration is a small file beside the model. It belongs to one file of weights: the errors of another model differ.
Intervals are split conformal (Papadopoulos et al. 2002; Lei et al. 2018): errors of labelled patients that training did
not see, divided by each patient's difficulty (one minus the predicted Dice), so that hard images get wide intervals.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from fclseg.documents import read_json, understood
from fclseg.errors import DataError
from fclseg.files import write_text
from fclseg.inference.values import PER_SURFACE, Value

LEAST_DIFFICULTY = 0.02


@dataclass(frozen=True)
class Calibration:
    """Fitted on labelled patients by ``fclseg calibrate``."""

    model: str  # digest of the weights
    patients: int
    hospitals: tuple[str, ...]
    coverage: float  # of the intervals
    dice: Mapping[str, tuple[float, float, float]]  # per structure: constant, weights of agreement and expected Dice
    errors: Mapping[str, tuple[float, float]]  # per quantity: relative errors per difficulty, low and high
    risk: tuple[float, ...] = ()  # weights of the features of ``risk.py``, the constant last
    flagged_from: float = 1.0  # risk
    about: str = field(default="", compare=False)

    def predicted_dice(self, reliability: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Per structure of one volume, from its agreement and expected Dice."""
        found = {}
        for name, (agreement, expected) in reliability.items():
            if name in self.dice:
                constant, first, second = self.dice[name]
                found[name] = float(np.clip(constant + first * agreement + second * expected, 0.0, 1.0))
        return found

    def with_intervals(self, values: Sequence[Value], predicted: Mapping[str, float]) -> list[Value]:
        """The values with their intervals, where this calibration knows their errors."""
        known = {value.name: value for value in values}
        return [self._with_interval(value, known, predicted) for value in values]

    def _with_interval(self, value: Value, known: Mapping[str, Value], predicted: Mapping[str, float]) -> Value:
        base = known.get(base_name(value.name), value)
        structure = value.name.partition(" ")[0]
        if not value.plausible or base.name not in self.errors or structure not in predicted or not base.number:
            return value
        step = difficulty(predicted[structure]) * scale_of(base, known) * value.number / base.number
        low, high = (value.number + error * step for error in self.errors[base.name])
        low, high = max(0.0, min(low, value.number)), max(high, value.number)
        return replace(value, interval=(low, min(high, 100.0) if value.unit == "%" else high))

    @property
    def about_intervals(self) -> str:
        """For readers of a report."""
        share = f"{100 * self.coverage:.0f} %"
        return f"In brackets: where an expert's value is expected with {share}, from {self.patients} labelled patients"

    def write(self, path: Path) -> None:
        write_text(path, json.dumps({"format": 1, **asdict(self)}, indent=1) + "\n")


def load_calibration(model: Path | str | None, stated: Path | None = None) -> Calibration | None:
    """The calibration beside a model's file, if there is one for these weights. A ``stated`` file must be for them."""
    path = stated if stated is not None or model is None else calibration_file(model)
    if model is None or path is None or (stated is None and not path.is_file()):
        return None
    found = _read(path)
    if found.model == digest(Path(model)):
        return found
    if stated is not None:
        raise DataError(f"{stated}: belongs to other weights than {model}; run 'fclseg calibrate' with these")
    return None


def _read(path: Path) -> Calibration:
    with understood(path, "remove it, or run 'fclseg calibrate' again"):
        content = dict(read_json(path))
        content.pop("format")
        pairs = {name: {key: tuple(value) for key, value in content[name].items()} for name in ("dice", "errors")}
        lists = {name: tuple(content[name]) for name in ("hospitals", "risk")}
        return Calibration(**{**content, **pairs, **lists})


def calibration_file(model: Path | str) -> Path:
    """Beside the model: ``model_calibration.json``."""
    return Path(model).with_name(f"{Path(model).stem}_calibration.json")


def digest(model: Path) -> str:
    """A short hash of a model's file."""
    return hashlib.blake2b(model.read_bytes(), digest_size=8).hexdigest()


def difficulty(dice: float) -> float:
    return max(LEAST_DIFFICULTY, 1 - dice)


def base_name(name: str) -> str:
    """The value from which another one is computed by multiplication with something that is known exactly."""
    return name.removesuffix(PER_SURFACE).replace(" cardiac output", " stroke volume")


def scale_of(value: Value, known: Mapping[str, Value]) -> float:
    """What an error is relative to: points for fractions, the filled cavity for a stroke volume, or the value."""
    if value.unit == "%":
        return 100.0
    if value.name.endswith(" stroke volume"):
        return known[value.name.replace(" stroke volume", " end-diastolic volume")].number
    return value.number
