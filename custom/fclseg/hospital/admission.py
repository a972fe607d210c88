"""The runs that a site knows: when each one started here, and whether somebody approved it.

Each run has one small file in the folder ``admitted`` of the site's runs, named after the fingerprint of the run's
identity and settings. People approve a fingerprint, because anybody can submit another run under the same name.
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
SHOWN, FILE_DIGITS = 12, 32
"""Digits of a fingerprint that people type, and in a file's name."""


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
    """What a person approves: this run with these settings, and no other."""
    text = json.dumps([run_id, settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Admissions:
    """All runs of a site, one file for each fingerprint: a run that is changed under its old name is another run."""

    def __init__(self, runs: Path):
        self._folder = runs / FOLDER

    def admit(self, asked: Admission, approval: bool) -> Admission:
        """Look up the run, and record it if it is new. Raises as long as a required approval is missing.

        A run that is started over under its old name keeps the time of its first task, so that this does not prolong
        the hours that the policy allows.
        """
        known = next((entry for entry in self.all() if entry.fingerprint == asked.fingerprint), None)
        if known is None:
            first = min([asked.asked, *(entry.asked for entry in self.named(asked.run))])
            known = replace(asked, asked=first)
            self._write(known)
        if approval and not known.approved:
            raise PolicyError(f"run '{known.run}' is waiting for approval at this site")
        return known

    def approve(self, fingerprint: str) -> Admission:
        """Record that somebody approved the run with this fingerprint, or with one that starts like this."""
        digits = fingerprint.lower()
        found = [entry for entry in self.all() if len(digits) >= SHOWN and entry.fingerprint.startswith(digits)]
        if len(found) != 1:
            waiting = ", ".join(
                f"{entry.fingerprint[:SHOWN]} ({entry.run})" for entry in self.all() if not entry.approved
            )
            raise FCLSegError(
                f"no run with the fingerprint '{fingerprint}' has asked this site for a task: give the first {SHOWN} "
                f"digits that `fclseg site runs` shows; waiting for approval: {waiting or 'none'}"
            )
        self._write(replace(found[0], approved=True))
        return found[0]

    def named(self, run: str) -> list[Admission]:
        """The runs that had this name, oldest first."""
        return [entry for entry in self.all() if entry.run == run]

    def all(self) -> list[Admission]:
        return sorted(map(_read, self._folder.glob("*.json")), key=lambda entry: entry.asked)

    def _write(self, admission: Admission) -> None:
        path = self._folder / f"{admission.fingerprint[:FILE_DIGITS]}.json"
        write_text(path, json.dumps(asdict(admission), indent=2) + "\n")


def _read(path: Path) -> Admission:
    with understood(path, "remove it and approve the run again"):
        entry = Admission(**read_json(path))
        return replace(entry, asked=float(entry.asked), run=str(entry.run), fingerprint=str(entry.fingerprint))


def hours_since(asked: float) -> float:
    return (time.time() - asked) / 3600
