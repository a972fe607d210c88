"""Finds the job named by ``--job``, or makes it from the exchange plan."""

from pathlib import Path

from fclseg.errors import FCLSegError
from fclseg.methods.exchange import ROWS
from fclseg.resources import JOBS, resource_folder, resource_names


def find_job(name: str, made: Path) -> Path:
    """The folder of a job: a path, a name below ./jobs, or one of the package's own jobs.

    A row of the exchange plan without a folder, for example a new method, gets one below ``made``.
    """
    for folder in (Path(name), Path(JOBS, name), resource_folder(JOBS) / name):
        if (folder / "meta.json").is_file():
            return folder
    if name not in ROWS:
        known = sorted({*ROWS, *resource_names(JOBS)})
        raise FCLSegError(f"there is no job '{name}': give a job folder, or one of {', '.join(known)}")
    from fclseg.engine.job_defaults import defaults
    from fclseg.flare.jobs import write_job

    write_job(made / name, ROWS[name], defaults(ROWS[name]))
    return made / name
