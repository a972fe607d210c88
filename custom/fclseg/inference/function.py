"""Computes the function of the heart from the volumes of the frames: ED and ES, EF, stroke volume, output, mass."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fclseg.anatomy.base import Anatomy, Mass
from fclseg.anatomy.families.acdc import cycle_of
from fclseg.inference.calibration import Calibration
from fclseg.inference.cycle import medians, smooth_cycle
from fclseg.inference.measure import Measurement, cavities, ejection_fraction, first_cavity
from fclseg.inference.risk import features, probability
from fclseg.inference.values import PER_SURFACE, Body, Value

MASS_CHANGE = 0.25
STROKE_CHANGE = 0.5
MOVED_MM = 15.0
SMALLEST_RATIO = 0.3
OUTLIER = 0.75
FEWEST_TO_JUDGE = 5
LEAST_LIKENESS = 0.7
NO_HEART = "nothing like a heart was found, so nothing is measured"
MIRRORED = (
    "it looks like a heart only if left and right are exchanged: RV and LV may be exchanged, or the image is mirrored "
    "or turned, so nothing is measured; check how it was exported"
)
"""Tolerances. The mass of a wall is constant, both ventricles pump the same volume, and the heart stays in place (in
the label maps of 40 ACDC patients its centre moves by at most 8 mm): a larger difference means that an outline is
wrong. The phantom's cohorts have no ventricle of less than .3 of the other one at ED. A frame that is off the curve of
the others by more than 3/4 of their range cannot be ED or ES; fewer than five frames are no curve. A result that looks
less like a heart than this gets no numbers: three ACDC patients have .91 to .93, and .0 to .68 beside the heart, with
the heart painted over, inverted and in noise."""


@dataclass
class PatientResult:
    """Everything that tables and the report show about one patient."""

    patient: str
    volumes: list[Measurement]
    values: list[Value] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    body: Body = field(default_factory=Body)
    notes: list[str] = field(default_factory=list)  # what was not as expected in the images, and what was done
    remarks: list[str] = field(default_factory=list)  # what is unusual in a result that is probably good
    predicted_dice: dict[str, float] = field(default_factory=dict)  # per structure, if the model was calibrated
    risk: float | None = None  # of a bad result, the same
    about_intervals: str = ""  # what the intervals of the values mean, the same

    @property
    def phases(self) -> dict[str, Measurement]:
        """ED before ES, as reports show them."""
        return {one.phase: one for one in sorted(self.volumes, key=lambda one: one.phase or "") if one.phase}

    def value(self, name: str) -> Value | None:
        return next((one for one in self.values if one.name == name), None)


def patient_result(
    patient: str, volumes: list[Measurement], anatomy: Anatomy, body: Body, calibration: Calibration | None = None
) -> PatientResult:
    """Find the phases if they are not named, compute the function, and collect the flags for review."""
    result = PatientResult(patient, volumes, body=body)
    named = any(one.phase for one in volumes)
    name_phases(volumes, anatomy)
    phases, shown = result.phases, [one for one in volumes if one.phase] or volumes
    result.flags = _collected([one.flags for one in shown], shown)
    if any(one.mirrored for one in shown):
        result.flags = [MIRRORED]
        return result
    if not _looks_like_a_heart(shown, anatomy):
        result.flags.insert(0, NO_HEART)
        return result
    result.remarks = _collected([one.remarks for one in shown], shown)
    if {"ED", "ES"} <= set(phases):
        ed, es = shown = [phases["ED"], phases["ES"]]
        result.values = _function(ed, es, anatomy, body)
        result.flags += _contradictions(ed, es, anatomy)
        result.remarks += _differences(ed, es, anatomy)
        if len(volumes) == 2 and not named:
            result.notes.append("there are two frames: the one with the larger LV counts as ED, the other as ES")
    else:
        result.values = [value for one in volumes for value in _single(one, anatomy)]
        if len(volumes) > 1 and cavities(anatomy):
            result.notes.append("no ejection fraction: ED and ES are not named, and the volumes do not show them")
    _judge(result, shown, anatomy, calibration)
    result.flags += _implausible(result.values)
    return result


def _looks_like_a_heart(shown: Sequence[Measurement], anatomy: Anatomy) -> bool:
    """Whether ED and ES, or any frame if they are not named, show the first cavity and are predicted alike."""
    first = first_cavity(anatomy)
    found = [one.likeness >= LEAST_LIKENESS and (first is None or one.ml[first] > 0) for one in shown]
    return all(found) if all(one.phase for one in shown) else any(found)


def _implausible(values: Sequence[Value]) -> list[str]:
    """One flag per structure: a failed outline spoils all values of its structure."""
    groups: dict[str, list[str]] = {}
    for value in values:
        if not value.plausible and not value.name.endswith(PER_SURFACE):
            structure, _, quantity = value.name.partition(" ")
            groups.setdefault(structure, []).append(f"{quantity} {value.text}")
    return [f"not plausible: {structure} {', '.join(texts)}" for structure, texts in groups.items()]


def _judge(
    result: PatientResult, shown: Sequence[Measurement], anatomy: Anatomy, calibration: Calibration | None
) -> None:
    """Intervals, predicted Dice and risk from the calibration. Without one, every remark is a flag."""
    if calibration is None or not any(one.reliability for one in shown):
        result.flags, result.remarks = result.flags + result.remarks, []
        return
    predicted = [calibration.predicted_dice(one.reliability) for one in shown]
    result.predicted_dice = {name: float(np.mean([one[name] for one in predicted])) for name in predicted[0]}
    result.values = calibration.with_intervals(result.values, result.predicted_dice)
    result.about_intervals = calibration.about_intervals
    result.risk = probability(calibration.risk, features(shown, predicted, first_cavity(anatomy)))
    if result.risk >= calibration.flagged_from:
        dice = ", ".join(f"{name} {value:.2f}" for name, value in result.predicted_dice.items())
        result.flags += [f"the outlines are probably poor (predicted Dice {dice})", *result.remarks]
        result.remarks = []


def _collected(sentences: Sequence[Sequence[str]], volumes: Sequence[Measurement]) -> list[str]:
    """The sentences about the volumes, each once, after the names of the phases or frames that have it."""
    places: dict[str, list[str]] = {}
    for one, found in zip(volumes, sentences, strict=True):
        frame = f"frame {one.frame}" if one.frame is not None and len(volumes) > 1 else ""
        for sentence in found:
            places.setdefault(sentence, []).append(one.phase or frame)
    return [f"{', '.join(names)}: {sentence}" if all(names) else sentence for sentence, names in places.items()]


def name_phases(volumes: Sequence[Measurement], anatomy: Anatomy) -> None:
    """ED is the frame in which the first cavity is largest, ES the frame in which it is smallest.

    Both are found on the smooth curve of the cycle, because the largest of many noisy volumes is too large, and the
    smallest too small. A frame far from the median of itself and its neighbours is an error and can be neither. Frames
    that the data set names keep their names.
    """
    chosen = cavities(anatomy)
    cine = len({cycle_of(one.image) for one in volumes}) == 1  # two files can be two exams, two frames are a cycle
    if not chosen or len(volumes) < (2 if cine else 3) or any(one.phase for one in volumes):
        return
    amounts = np.array([one.ml[chosen[0].structure] for one in volumes])
    steady = amounts > 0
    curve = amounts
    if len(amounts) >= FEWEST_TO_JUDGE:
        middle = medians(amounts)
        steady &= np.abs(amounts - middle) <= OUTLIER * np.ptp(middle)
        curve = smooth_cycle(np.where(steady, amounts, middle))
    if not steady.any():
        return
    end_diastole = int(np.where(steady, curve, -np.inf).argmax())
    end_systole = int(np.where(steady, curve, np.inf).argmin())
    if end_diastole != end_systole:
        volumes[end_diastole].phase, volumes[end_systole].phase = "ED", "ES"


def _function(end_diastole: Measurement, end_systole: Measurement, anatomy: Anatomy, body: Body) -> list[Value]:
    values = []
    for one in cavities(anatomy):
        name, (low, high) = one.structure, one.plausible_ml
        edv, esv = end_diastole.ml[name], end_systole.ml[name]
        volume_fits = low <= edv <= high
        values += [
            Value(f"{name} end-diastolic volume", edv, "ml", volume_fits, one.caution),
            Value(f"{name} end-systolic volume", esv, "ml", volume_fits and esv < edv, one.caution),
        ]
        fraction = ejection_fraction(edv, esv)
        if fraction is None:
            continue
        fits = volume_fits and one.plausible[0] <= fraction <= one.plausible[1]
        values += [
            Value(f"{name} ejection fraction", fraction, "%", fits, one.caution),
            Value(f"{name} stroke volume", edv - esv, "ml", fits),
        ]
        values += _indexed(f"{name} end-diastolic volume", edv, "ml", volume_fits, body)
        values += _indexed(f"{name} end-systolic volume", esv, "ml", volume_fits and esv < edv, body)
        values += _indexed(f"{name} stroke volume", edv - esv, "ml", fits, body)
        if body.heart_rate is not None:
            output = (edv - esv) * body.heart_rate / 1000
            values.append(Value(f"{name} cardiac output", output, "l/min", fits))
            values += _indexed(f"{name} cardiac output", output, "l/min", fits, body)
    return values + _masses(end_diastole, anatomy, body)


def _single(one: Measurement, anatomy: Anatomy) -> list[Value]:
    """Without both phases: volumes and masses of each frame separately."""
    prefix = f"{one.phase} " if one.phase else ""
    frame = f" in frame {one.frame}" if one.frame is not None else ""
    bounds = {cavity.structure: cavity.plausible_ml for cavity in cavities(anatomy)}
    values = []
    for name, amount in one.ml.items():
        low, high = bounds.get(name, (0.0, math.inf))
        values.append(Value(f"{prefix}{name} volume{frame}", amount, "ml", low <= amount <= high))
    return values + _masses(one, anatomy, Body(), prefix, frame)


def _masses(one: Measurement, anatomy: Anatomy, body: Body, prefix: str = "", frame: str = "") -> list[Value]:
    values = []
    for mass in (measurement for measurement in anatomy.measurements if isinstance(measurement, Mass)):
        grams = one.g[mass.structure]
        fits = mass.plausible[0] <= grams <= mass.plausible[1]
        values.append(Value(f"{prefix}{mass.structure} mass{frame}", grams, "g", fits, mass.caution))
        values += _indexed(f"{mass.structure} mass", grams, "g", fits, body)
    return values


def _indexed(name: str, number: float, unit: str, fits: bool, body: Body) -> list[Value]:
    surface = body.surface_m2
    return [] if surface is None else [Value(name + PER_SURFACE, number / surface, f"{unit}/m²", fits)]


def _contradictions(end_diastole: Measurement, end_systole: Measurement, anatomy: Anatomy) -> list[str]:
    """Contradictions that are impossible within one heart."""
    flags = []
    for one in cavities(anatomy):
        if end_systole.ml[one.structure] > end_diastole.ml[one.structure]:
            flags.append(f"{one.structure} is larger at ES than at ED: check the phases")
    amounts = sorted((end_diastole.ml[one.structure], one.structure) for one in cavities(anatomy))
    if len(amounts) == 2 and amounts[0][0] < SMALLEST_RATIO * amounts[1][0]:
        (least, small), (most, large) = amounts
        flags.append(
            f"{small} is far smaller than {large} at ED ({least:.0f} and {most:.0f} ml): a part may be missing"
        )
    places = (end_diastole.off_centre_mm, end_systole.off_centre_mm)
    if places[0] is not None and places[1] is not None and math.dist(places[0], places[1]) > MOVED_MM:
        flags.append(f"the heart was found {math.dist(places[0], places[1]):.0f} mm apart at ED and at ES")
    return flags


def _differences(end_diastole: Measurement, end_systole: Measurement, anatomy: Anatomy) -> list[str]:
    """Differences that are unlikely within one heart."""
    remarks = []
    for name in end_diastole.g:
        first, second = end_diastole.g[name], end_systole.g[name]
        if first and second and abs(first - second) > MASS_CHANGE * max(first, second):
            remarks.append(f"the mass of {name} differs between ED and ES: {first:.0f} g and {second:.0f} g")
    strokes = [end_diastole.ml[one.structure] - end_systole.ml[one.structure] for one in cavities(anatomy)]
    if len(strokes) == 2 and abs(strokes[0] - strokes[1]) > STROKE_CHANGE * max(*strokes, 1.0):
        remarks.append(f"the ventricles' stroke volumes differ: {strokes[0]:.0f} ml and {strokes[1]:.0f} ml")
    return remarks
