"""Studies and reports from Python, the same as ``fclseg study`` and ``fclseg report``."""

from pathlib import Path
from typing import Any

from fclseg.study.report.page import write_report
from fclseg.study.run import Studied, StudyOptions, run_study


def study(table: str, out: Path | str = "studies", **options: Any) -> Studied:
    """Run a table of the paper: the missing pre-trainings and fine-tunings, tables, statistics and report.

    ``options`` are those of ``fclseg.study.run.StudyOptions``: data, sites, splits, methods, labels, folds, seeds, ...
    Finished cells are kept in ``out``: the same call continues an interrupted study, and answers at once when it is
    complete.
    """
    return run_study(StudyOptions(table=table, out=Path(out), **options))


def report(
    folder: Path | str, out: Path | str | None = None, *, patient_names: bool = False, command: str = ""
) -> Path:
    """Write one self-contained page about a run, a study, or all studies of a folder. Returns its path."""
    return write_report(Path(folder), None if out is None else Path(out), command=command, names=patient_names)
