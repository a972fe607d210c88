"""Reports from Python, the same as ``fclseg report``."""

from pathlib import Path

from fclseg.study.report.page import write_report


def report(
    folder: Path | str, out: Path | str | None = None, *, patient_names: bool = False, command: str = ""
) -> Path:
    """Write one self-contained page about a run, a study, or all studies of a folder. Returns its path."""
    return write_report(Path(folder), None if out is None else Path(out), command=command, names=patient_names)
