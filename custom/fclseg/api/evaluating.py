"""Evaluation from Python: any results against experts' label maps."""

from collections.abc import Sequence
from pathlib import Path

from fclseg.evaluation.run import Evaluated, Pair
from fclseg.evaluation.run import evaluate as run


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
