"""Fits a calibration on labelled patients, and checks one on others.

Intervals: the order statistics of split conformal prediction, so that a new patient of the same kind is covered with at
least the stated probability. Risk: chosen on patients that the regression has not seen (folds), such that few good
results are flagged.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fclseg.anatomy.base import Anatomy
from fclseg.errors import DataError
from fclseg.evaluation.known import Known
from fclseg.inference import risk
from fclseg.inference.calibration import Calibration, base_name, difficulty, scale_of
from fclseg.inference.function import PatientResult, patient_result
from fclseg.inference.measure import first_cavity
from fclseg.inference.values import Body

COVERAGE = 0.9
FALSE_FLAGS = 0.15
"""The part of good results that may be flagged, in patients by which the rule is chosen."""
FOLDS = 8


def calibrate(known: Sequence[Known], anatomy: Anatomy, model: str, coverage: float = COVERAGE) -> Calibration:
    """The calibration of a model, given by the digest of its weights."""
    fewest = math.ceil(2 / (1 - coverage) - 1e-9) - 1
    if len(known) < fewest:
        raise DataError(
            f"{len(known)} labelled patients are too few for intervals of {100 * coverage:.0f} %: give {fewest} or "
            "more, or a lower --coverage"
        )
    hospitals = tuple(sorted({one.hospital for one in known}))
    first = Calibration(model, len(known), hospitals, coverage, _dice_lines(known, anatomy), {})
    errors = _errors(known, anatomy, first)
    intervals = {name: _outer(values, coverage) for name, values in errors.items() if len(values) >= fewest}
    rows = np.stack([_features(one, anatomy, first) for one in known])
    bad = np.array([one.bad for one in known])
    weights, threshold = _risk(rows, bad)
    return Calibration(model, len(known), hospitals, coverage, first.dice, intervals, weights, threshold)


def _dice_lines(known: Sequence[Known], anatomy: Anatomy) -> dict[str, tuple[float, float, float]]:
    """Least squares of the true Dice on agreement and expected Dice, per structure."""
    lines = {}
    for name in anatomy.names:
        pairs = [
            (volume.reliability[name], dice[name])
            for one in known
            for volume, dice in zip(one.found, one.dice, strict=True)
        ]
        design = np.array([[1.0, *figures] for figures, _ in pairs])
        # A weak pull towards 0: the two figures are nearly proportional to each other.
        extra = np.diag([0.0, 0.1, 0.1])
        target = np.array([*(dice for _, dice in pairs), 0.0, 0.0, 0.0])
        line, *_ = np.linalg.lstsq(np.vstack([design, extra]), target, rcond=None)
        lines[name] = (float(line[0]), float(line[1]), float(line[2]))
    return lines


def _errors(known: Sequence[Known], anatomy: Anatomy, calibration: Calibration) -> dict[str, list[float]]:
    """Relative errors per difficulty, by quantity."""
    errors: dict[str, list[float]] = {}
    for one in known:
        result = patient_result(one.patient, one.found, anatomy, Body())
        values = {value.name: value for value in result.values}
        predicted = _predicted(one, calibration)
        for name, value in values.items():
            structure = name.partition(" ")[0]
            if base_name(name) == name and name in one.truth and (scale := scale_of(value, values)):
                step = scale * difficulty(predicted[structure])
                errors.setdefault(name, []).append((one.truth[name] - value.number) / step)
    return errors


def _predicted(one: Known, calibration: Calibration) -> dict[str, float]:
    both = [calibration.predicted_dice(volume.reliability) for volume in one.found]
    return {name: float(np.mean([dice[name] for dice in both])) for name in both[0]}


def _outer(errors: Sequence[float], coverage: float) -> tuple[float, float]:
    """The errors between which a further one lies with at least this probability, half of the rest on each side."""
    ordered, n = sorted(errors), len(errors)
    low = math.floor((n + 1) * (1 - coverage) / 2 + 1e-9)
    return ordered[max(low, 1) - 1], ordered[n - max(low, 1)]


def _features(one: Known, anatomy: Anatomy, calibration: Calibration) -> np.ndarray:
    predicted = [calibration.predicted_dice(volume.reliability) for volume in one.found]
    return risk.features(one.found, predicted, first_cavity(anatomy))


def _risk(rows: np.ndarray, bad: np.ndarray) -> tuple[tuple[float, ...], float]:
    """Weights, and the risk from which on results are flagged, chosen on patients left out in turns."""
    if not bad.any() or bad.all():
        return (*[0.0] * rows.shape[1], -5.0), 0.5
    risks = np.zeros(len(rows))
    for fold in range(FOLDS):
        out = np.arange(len(rows)) % FOLDS == fold
        if bad[~out].any() and not bad[~out].all():
            weights = risk.fit(rows[~out], bad[~out])
            risks[out] = [risk.probability(weights, row) for row in rows[out]]
    good = np.sort(risks[~bad])
    allowed = math.floor(FALSE_FLAGS * len(good))
    return risk.fit(rows, bad), float(np.nextafter(good[len(good) - 1 - allowed], 2))


@dataclass(frozen=True)
class Checked:
    """How a calibration does on labelled patients, by hospital."""

    coverage: dict[str, dict[str, float]]  # hospital -> quantity -> part of the patients within their interval
    widths: dict[str, float]  # quantity -> mean width
    flags: dict[str, dict[str, int]]  # hospital -> bad, bad_flagged, good, good_flagged
    spearman: float  # predicted against true Dice of the patients

    def text(self) -> str:
        lines = []
        for hospital, parts in self.coverage.items():
            shown = ", ".join(f"{name} {100 * part:.0f} %" for name, part in parts.items())
            flags = self.flags[hospital]
            lines.append(
                f"{hospital}: {shown}; flagged {flags['bad_flagged']} of {flags['bad']} bad and "
                f"{flags['good_flagged']} of {flags['good']} good results"
            )
        widths = ", ".join(f"{name} {width:.0f}" for name, width in self.widths.items())
        return "\n".join([*lines, f"mean widths: {widths}", f"predicted and true Dice: Spearman {self.spearman:.2f}"])

    def plain(self) -> dict[str, Any]:
        return vars(self)


def check(known: Sequence[Known], anatomy: Anatomy, calibration: Calibration) -> Checked:
    """Coverage, widths, flags and rank correlation on labelled patients."""
    results = [(one, patient_result(one.patient, one.found, anatomy, Body(), calibration)) for one in known]
    everything = {"all": results} | {
        hospital: [pair for pair in results if pair[0].hospital == hospital]
        for hospital in sorted({one.hospital for one in known})
    }
    widths: dict[str, list[float]] = {}
    for _, result in results:
        for value in result.values:
            if value.interval is not None:
                widths.setdefault(value.name, []).append(value.interval[1] - value.interval[0])
    predicted = [float(np.mean(list(result.predicted_dice.values()))) for _, result in results if result.predicted_dice]
    true = [_mean_dice(one) for one, result in results if result.predicted_dice]
    return Checked(
        {hospital: _coverage(pairs) for hospital, pairs in everything.items()},
        {name: float(np.mean(values)) for name, values in widths.items()},
        {hospital: _flagged(pairs) for hospital, pairs in everything.items()},
        _spearman(predicted, true),
    )


def _coverage(pairs: Sequence[tuple[Known, PatientResult]]) -> dict[str, float]:
    inside: dict[str, list[bool]] = {}
    for one, result in pairs:
        for value in result.values:
            if value.interval is not None:
                low, high = value.interval
                inside.setdefault(value.name, []).append(low <= one.truth[value.name] <= high)
    return {name: float(np.mean(values)) for name, values in inside.items()}


def _flagged(pairs: Sequence[tuple[Known, PatientResult]]) -> dict[str, int]:
    counts: Mapping[bool, list[bool]] = {True: [], False: []}
    for one, result in pairs:
        counts[one.bad].append(bool(result.flags))
    return {
        "bad": len(counts[True]),
        "bad_flagged": sum(counts[True]),
        "good": len(counts[False]),
        "good_flagged": sum(counts[False]),
    }


def _mean_dice(one: Known) -> float:
    return float(np.mean([value for dice in one.dice for value in dice.values()]))


def _spearman(first: Sequence[float], second: Sequence[float]) -> float:
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    return float(np.asarray(np.corrcoef(ranks))[0, 1]) if len(first) > 2 else float("nan")
