"""Evaluation from Python: any results against experts' label maps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fclseg.anatomy.folders import folder_anatomy
from fclseg.evaluation.calibrate import COVERAGE, Checked
from fclseg.evaluation.calibrate import calibrate as fit
from fclseg.evaluation.calibrate import check as check_on
from fclseg.evaluation.evaluate import Evaluated, Pair
from fclseg.evaluation.evaluate import evaluate as run
from fclseg.evaluation.known import known_patients
from fclseg.evaluation.people import HALVES
from fclseg.inference.calibration import Calibration, calibration_file, digest
from fclseg.resources import shipped_model


def evaluate(
    pairs: Sequence[tuple[Path | str, Path | str]],
    out: Path | str | None = None,
    *,
    patients: Path | str | None = None,
    half: str | None = None,
    per_group: int | None = None,
    hd95: bool = True,
    model: Path | str | None = None,
) -> Evaluated:
    """Score (results, labelled) pairs of folders by hospital and by group; tables and a page go to ``out``.

    ``patients`` is a table (CSV) with hospital, vendor and group of the patients. ``half`` ("choose" or "report") keeps
    one half of the patients of each hospital and group; ``per_group`` keeps the first few of each. With a ``model``
    file, patients without a result are segmented first.
    """
    table = None if patients is None else Path(patients)
    chosen = [Pair(Path(results), Path(labelled), table) for results, labelled in pairs]
    evaluated = run(chosen, half=half, per_group=per_group, hd95=hd95, model=None if model is None else Path(model))
    if out is not None:
        evaluated.write(Path(out))
    return evaluated


@dataclass(frozen=True)
class Calibrated:
    calibration: Calibration
    path: Path
    checked: Checked | None  # on the other half, if asked for


def calibrate(
    labelled: Sequence[Path | str],
    results: Path | str,
    model: Path | str | None = None,
    out: Path | str | None = None,
    *,
    patients: Path | str | None = None,
    half: str | None = None,
    check: bool = False,
    per_group: int | None = None,
    coverage: float = COVERAGE,
) -> Calibrated:
    """Calibrate a model on labelled patients that it was not trained on; segment them into ``results`` first.

    The file is written beside the model, where ``segment`` finds it, or to ``out``. With ``check``, the calibration of
    one half is checked on the other.
    """
    table = None if patients is None else Path(patients)
    pairs = [Pair(Path(results) / Path(one).resolve().name, Path(one), table) for one in labelled]
    weights = shipped_model(folder_anatomy(pairs[0].labelled).bundle) if model is None else Path(model)
    known, anatomy = known_patients(pairs, weights, half, per_group)
    calibration = fit(known, anatomy, digest(weights), coverage)
    path = calibration_file(weights) if out is None else Path(out)
    checked = None
    if check:
        other = next(one for one in HALVES if one != half)
        checked = check_on(known_patients(pairs, weights, other, per_group)[0], anatomy, calibration)
    calibration.write(path)
    return Calibrated(calibration, path, checked)
