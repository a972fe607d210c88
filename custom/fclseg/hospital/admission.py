"""The runs that a site knows: when each one started here, and whether somebody approved it.

Each run has one small file in the folder ``admitted`` of the site's runs. The file is bound to the run's identity and
settings. A run that is started over or changed under its old name is therefore a new run for the site.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fclseg.documents import read_json, understood
from fclseg.errors import FCLSegError
from fclseg.files import write_text
from fclseg.hospital.policy import PolicyError

FOLDER = "admitted"


@dataclass(frozen=True)
class Admission:
    """What the site knows about one run."""

    run: str
    fingerprint: str  # of the run's identity and settings
    job: str
    preset: str
    rounds: int
    submitter: str
    asked: float  # when the first task arrived, in seconds since 1970
    approved: bool = False


def fingerprint(run_id: str, settings: Mapping[str, Any]) -> str:
    text = json.dumps([run_id, settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Admissions:
    """All runs of a site."""

    def __init__(self, runs: Path):
        self._folder = runs / FOLDER

    def admit(self, asked: Admission, approval: bool) -> Admission:
        """Look up the run, and record it if it is new. Raises as long as a required approval is missing."""
        known = self.find(asked.run)
        if known is None or known.fingerprint != asked.fingerprint:
            known = asked
            self._write(known)
        if approval and not known.approved:
            raise PolicyError(f"run '{known.run}' is waiting for approval at this site")
        return known

    def approve(self, run: str) -> Admission:
        """Record that somebody approved the run."""
        known = self.find(run)
        if known is None:
            waiting = ", ".join(sorted(entry.run for entry in self.all() if not entry.approved)) or "none"
            raise FCLSegError(
                f"no run '{run}' has asked this site for a task yet; runs waiting for approval: {waiting}"
            )
        self._write(replace(known, approved=True))
        return known

    def find(self, run: str) -> Admission | None:
        path = self._path(run)
        return _read(path) if path.exists() else None

    def all(self) -> list[Admission]:
        paths = sorted(self._folder.glob("*.json"))
        return [_read(path) for path in paths]

    def _path(self, run: str) -> Path:
        if run != Path(run).name or run.startswith("."):
            raise FCLSegError(f"'{run}' is not a valid run name: give the plain name of a run folder")
        return self._folder / f"{run}.json"

    def _write(self, admission: Admission) -> None:
        write_text(self._path(admission.run), json.dumps(asdict(admission), indent=2) + "\n")


def _read(path: Path) -> Admission:
    with understood(path, "remove it and approve the run again"):
        return Admission(**read_json(path))


def hours_since(asked: float) -> float:
    return (time.time() - asked) / 3600
