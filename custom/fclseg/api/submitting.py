"""Runs at connected hospitals, the same as ``fclseg submit``."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fclseg.engine.job_defaults import completed
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.flare.jobs import write_job
from fclseg.flare.kits.project import submit_job
from fclseg.flare.runs.lead import add_command, remember_job
from fclseg.methods.exchange import get_row
from fclseg.presets import full_name


@dataclass(frozen=True)
class Submitted:
    """A run's name, and NVFlare's number of its job."""

    run: str
    job: str


def submit(
    job: str,
    kit: Path | str,
    *,
    preset: str = "small",
    changes: Mapping[str, Any] | None = None,
    min_sites: int = 1,
    command: str = "",
    **settings: Any,
) -> Submitted:
    """Make a job for real sites and submit it with the lead's startup kit.

    ``changes`` replace settings of the preset. ``settings`` are those of a run: rounds, seed, network, codec, tracking,
    run (its name), ... The server continues an interrupted run by itself. If it has given up, the same call continues
    the run, which is found by its name.
    """
    folder = Path(kit)
    if not (folder / "startup" / "fed_admin.json").is_file():
        raise FCLSegError(f"{folder} is not the startup kit of a lead: use the one that the coordinator made for you")
    if min_sites < 1:
        raise FCLSegError(f"--min-sites must be at least 1, not {min_sites}")
    row = get_row(job)
    changed = {full_name(name): value for name, value in (changes or {}).items()}
    given = {"preset": preset, "min_sites": min_sites, "changes": changed, **settings}
    chosen = completed(row, {name: value for name, value in given.items() if value not in (None, {})})
    checked = RunSettings.read({"job": row.job, **chosen}, {})
    with tempfile.TemporaryDirectory() as made:
        write_job(Path(made) / row.job, row, chosen, simulator=False)
        add_command(Path(made) / row.job, command)
        job_id = submit_job(Path(made) / row.job, folder.absolute())
    remember_job(folder, checked.run, job_id)
    return Submitted(checked.run, job_id)
