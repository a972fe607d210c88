"""Labelled patients with their results: what a calibration learns from and is checked on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fclseg.anatomy.base import Anatomy, Mass
from fclseg.errors import DataError
from fclseg.evaluation.evaluate import Evaluated, Pair, evaluate
from fclseg.evaluation.scores import ScoreRow
from fclseg.evaluation.summary import is_bad
from fclseg.inference.function import patient_result
from fclseg.inference.measure import Measurement
from fclseg.inference.patients import measurements_of
from fclseg.inference.values import Body

PHASES = ("ED", "ES")


@dataclass(frozen=True)
class Known:
    """One patient with both phases: what was found, and what is true."""

    patient: str
    hospital: str
    group: str
    found: list[Measurement]  # ED and ES
    dice: list[dict[str, float]]  # true Dice per structure, of the same volumes
    truth: dict[str, float]  # true values by name
    bad: bool


def known_patients(
    pairs: Sequence[Pair], model: Path, half: str | None = None, per_group: int | None = None
) -> tuple[list[Known], Anatomy]:
    """Segment the labelled patients, as far as that is not done, and compare."""
    evaluated = evaluate(pairs, half=half, per_group=per_group, hd95=False, model=model)
    known = []
    for row in evaluated.patients:
        rows = [
            one for one in evaluated.volumes if (one["patient"], one["hospital"]) == (row["patient"], row["hospital"])
        ]
        folder = evaluated.sources[row["hospital"], row["patient"]]
        if (one := _known(row, rows, folder, evaluated)) is not None:
            known.append(one)
    if not known:
        raise DataError(f"{pairs[0].labelled}: has no patient with ED and ES and all structures labelled")
    return known, evaluated.anatomy


def _known(row: ScoreRow, rows: Sequence[ScoreRow], folder: Path, evaluated: Evaluated) -> Known | None:
    anatomy = evaluated.anatomy
    phases = {one["phase"]: one for one in rows}
    found = {one.phase: one for one in measurements_of(folder, row["patient"])}
    complete = all(
        phase in found and phase in phases and None not in (phases[phase][f"true_ml_{n}"] for n in anatomy.names)
        for phase in PHASES
    )
    if not complete:
        return None
    truth = patient_result(row["patient"], [_true(phases[phase], anatomy) for phase in PHASES], anatomy, Body())
    return Known(
        row["patient"],
        row["hospital"],
        row["group"],
        [found[phase] for phase in PHASES],
        [{name: phases[phase][f"dice_{name}"] for name in anatomy.names} for phase in PHASES],
        {value.name: value.number for value in truth.values},
        is_bad(row, anatomy),
    )


def _true(row: ScoreRow, anatomy: Anatomy) -> Measurement:
    """A measurement of an expert's label map."""
    ml = {name: row[f"true_ml_{name}"] for name in anatomy.names}
    masses = [one for one in anatomy.measurements if isinstance(one, Mass)]
    g = {one.structure: ml[one.structure] * one.g_per_ml for one in masses}
    return Measurement(row["patient"], row["phase"], "", ml, g, slices_ml={})
