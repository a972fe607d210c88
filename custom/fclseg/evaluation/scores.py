"""One row of scores per volume, and one per patient: Dice, surface distance, volumes, mass and ejection fractions.

Volumes are compared in per cent, so they count at hospitals whose images only have nominal voxel sizes, too. Distances
in millimetres need true ones. A structure that an expert's label map does not have was not outlined and is not scored.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.records import Volume
from fclseg.data.preprocess import UNLABELLED
from fclseg.evaluation.people import Person
from fclseg.finetune.metrics import METRICS
from fclseg.inference.measure import cavities, ejection_fraction, millilitres

ScoreRow = dict[str, Any]


def volume_row(volume: Volume, person: Person, labels: np.ndarray, truth: np.ndarray, hd95: bool) -> ScoreRow:
    """The scores of one label map [X, Y, S]."""
    anatomy = volume.anatomy
    missing = truth == UNLABELLED  # slices that nobody labelled are not scored, and their volume is unknown
    labels, truth = (np.where(missing, 0, one) for one in (labels, truth))
    row: ScoreRow = _who(person) | {"phase": volume.phase, "frame": volume.frame}
    outlined = [one.name for one in anatomy.structures if (truth == one.value).any()]
    stacks = [np.moveaxis(labels, -1, 0), np.moveaxis(truth, -1, 0)]
    for metric in METRICS:
        if metric.slow and not (hd95 and person.true_spacing):
            continue
        values = metric.compute(stacks[0], stacks[1], anatomy.classes, volume.spacing)
        for name, value in zip(anatomy.names, values, strict=True):
            row[f"{metric.name}_{name}"] = round(float(value), metric.decimals + 3) if name in outlined else None
    for prefix, one in (("ml", labels), ("true_ml", truth)):
        amounts = millilitres(one, volume.spacing, anatomy)
        known = [] if missing.any() else outlined
        row |= {f"{prefix}_{name}": round(amounts[name], 2) if name in known else None for name in anatomy.names}
    return row


def patient_row(person: Person, rows: Sequence[ScoreRow], anatomy: Anatomy, look_at: Sequence[str] | None) -> ScoreRow:
    """Means over a patient's volumes, errors of volumes at ED and ES, and ejection fractions, found and true."""
    result = _who(person)
    result |= {f"dice_{name}": mean([row[f"dice_{name}"] for row in rows]) for name in anatomy.names}
    result["dice"] = mean([result[f"dice_{name}"] for name in anatomy.names])
    result |= {f"hd95_{name}": mean([row.get(f"hd95_{name}") for row in rows]) for name in anatomy.names}
    phases = {row["phase"]: row for row in rows}
    for phase in ("ED", "ES") if {"ED", "ES"} & set(phases) else (None,):
        suffix = f"_{phase}" if phase else ""
        for name in anatomy.names:
            result[f"volume_percent_{name}{suffix}"] = _percent(phases.get(phase), name)
    for one in cavities(anatomy):
        for kind, prefix in (("ml", ""), ("true_ml", "true_")):
            amounts = [phases.get(phase, {}).get(f"{kind}_{one.structure}") for phase in ("ED", "ES")]
            ed, es = amounts
            fraction = None if ed is None or es is None else ejection_fraction(ed, es)
            result[f"{prefix}ef_{one.structure}"] = None if fraction is None else round(fraction, 1)
    result["look_at"] = None if look_at is None else "; ".join(look_at)
    return result


def _who(person: Person) -> ScoreRow:
    return {name: getattr(person, name) for name in ("patient", "hospital", "vendor", "group", "half")}


def _percent(row: ScoreRow | None, name: str) -> float | None:
    """Found minus true volume in per cent of the true one. The error of a mass is that of its wall at ED."""
    if row is None or not row[f"true_ml_{name}"]:
        return None
    return round(100 * (row[f"ml_{name}"] / row[f"true_ml_{name}"] - 1), 1)


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of those that are known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
