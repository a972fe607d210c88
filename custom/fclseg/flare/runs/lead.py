"""The lead's side of submitted runs: which jobs were submitted with a kit, and what the server says about them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fclseg.documents import read_json_lines
from fclseg.engine.run_files import CONTINUED_AS, FACTS
from fclseg.environment import COMMAND
from fclseg.errors import FCLSegError
from fclseg.files import append_line
from fclseg.flare.kits.project import find_value, nvflare
from fclseg.flare.runs.overview import describe_facts

SUBMITTED = "submitted.jsonl"
"""In the lead's kit: one line per submitted job."""


def add_command(job: Path, command: str) -> None:
    """Write the command into the job's meta data, so that the server can record it with the run."""
    path = job / "meta.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"custom_props": {COMMAND: command}}, indent=2) + "\n")


def remember_job(kit: Path, run: str, job_id: str) -> None:
    append_line(kit / SUBMITTED, json.dumps({"run": run, "job": job_id}))


def describe_submitted(kit: Path) -> Iterator[str]:
    """One line per run that was submitted with this kit, newest first: the facts from the server."""
    newest = {entry["run"]: str(entry["job"]) for entry in read_json_lines(kit / SUBMITTED)}
    for run, first in reversed(newest.items()):
        try:
            job_id, meta = _newest_job(first, kit)
        except FCLSegError as error:
            yield f"{run}  unknown  {error}"
            continue
        known: Any = find_value(meta, FACTS)
        line = describe_facts(known) if known else f"{run}  {str(find_value(meta, 'status')).lower()}"
        yield f"{line}  job {job_id}"
        if known and known["result"]:
            yield f"  nvflare job download {job_id} --startup-kit {kit}"


def _newest_job(job_id: str, kit: Path) -> tuple[str, Any]:
    """The job that now works on the run, because the server continues interrupted runs with new jobs."""
    while True:
        meta = json.loads(nvflare("job", "meta", job_id, "--format", "json", "--startup-kit", str(kit)))
        if (following := find_value(meta, CONTINUED_AS)) is None:
            return job_id, meta
        job_id = str(following)
