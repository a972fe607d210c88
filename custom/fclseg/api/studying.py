"""Studies from Python, the same as ``fclseg study``."""

from pathlib import Path
from typing import Any

from fclseg.study.run import Options, Studied, run_study


def study(table: str, out: Path | str = "studies", **options: Any) -> Studied:
    """Run a table of the paper: the missing pre-trainings and fine-tunings, tables, statistics and report.

    ``options`` are those of ``fclseg.study.run.Options``: data, sites, splits, methods, labels, folds, seeds, ...
    Finished cells are kept in ``out``: the same call continues an interrupted study, and answers at once when it is
    complete.
    """
    return run_study(Options(table=table, out=Path(out), **options))
