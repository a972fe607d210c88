"""Who labelled which slice, in how many seconds: one line per change, written before anybody is told that it is saved.

The last line of a slice counts. Its revision goes up with every change, so that of two windows that changed the same
slice the later one is told. ``labelled.csv`` is the same for people and spreadsheets.
"""

import csv
import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from fclseg.documents import read_json_lines, understood
from fclseg.errors import FCLSegError
from fclseg.files import append_line, whole_file
from fclseg.labelling.proposal import Key
from fclseg.text import cell

JOURNAL, TABLE = "labelling.jsonl", "labelled.csv"
OPEN, DRAFT, DONE, EXCLUDED = "open", "draft", "done", "excluded"
STATES = (OPEN, DRAFT, DONE, EXCLUDED)
"""Nothing changed yet; begun; labelled; left out of training and measurements."""


class ChangedMeanwhileError(FCLSegError):
    """Somebody else, or another window, changed the slice since it was read."""

    http_status = HTTPStatus.CONFLICT


@dataclass(frozen=True)
class SliceRecord:
    revision: int = 0
    state: str = OPEN
    who: str = ""
    seconds: float = 0.0  # of work on this slice, all visits together
    at: str = ""  # UTC


class Records:
    """The journal of one folder of labels. Slices are counted from the base of the heart, beginning with 0."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.slices: dict[Key, SliceRecord] = {}
        self.phases: dict[str, dict[int, str]] = {}  # frames that a person named, by patient
        with understood(folder / JOURNAL, "restore it from a backup"):
            for line in read_json_lines(folder / JOURNAL):
                patient, frame = line.pop("patient"), line.pop("frame")
                if "phase" in line:
                    self._name_phase(patient, frame, line["phase"])
                else:
                    number = line.pop("slice")
                    self.slices[patient, frame, number] = SliceRecord(**line)

    def of(self, key: Key) -> SliceRecord:
        return self.slices.get(key, SliceRecord())

    def check(self, key: Key, revision: int) -> None:
        """Raise unless ``revision`` is the slice's current one."""
        known = self.of(key)
        if revision != known.revision:
            raise ChangedMeanwhileError(
                f"slice {key[2] + 1} of {key[0]} was changed meanwhile by {known.who or 'somebody'} (revision "
                f"{known.revision}, not {revision}): look at it again before you change it"
            )

    def change(self, key: Key, state: str, who: str, seconds: float) -> SliceRecord:
        """A new revision of a slice, on disk when this returns. ``seconds`` are added to those of earlier visits."""
        known = self.of(key)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        record = SliceRecord(known.revision + 1, state, who, round(known.seconds + max(0.0, seconds), 1), at)
        patient, frame, number = key
        line = {"patient": patient, "frame": frame, "slice": number, **asdict(record)}
        append_line(self.folder / JOURNAL, json.dumps(line))
        self.slices[key] = record
        if DONE in (state, known.state) or EXCLUDED in (state, known.state):
            self.write_table()
        return record

    def found(self, key: Key, labelled: bool) -> None:
        """Make the record of a slice agree with the label map, which counts if the two differ.

        A label map may have been drawn with another program, or removed.
        """
        known = self.of(key)
        if labelled and known.state != DONE:
            self.slices[key] = replace(known, state=DONE)
        elif not labelled and known.state == DONE:
            self.slices[key] = replace(known, state=OPEN)

    def set_phase(self, patient: str, frame: int, phase: str, who: str) -> None:
        append_line(self.folder / JOURNAL, json.dumps({"patient": patient, "frame": frame, "phase": phase, "who": who}))
        self._name_phase(patient, frame, phase)

    def _name_phase(self, patient: str, frame: int, phase: str) -> None:
        """Each phase is one frame, and a frame is one phase at most."""
        named = {number: name for number, name in self.phases.get(patient, {}).items() if name != phase}
        self.phases[patient] = {**named, frame: phase}

    def keys(self, *states: str) -> list[Key]:
        return [key for key, record in self.slices.items() if record.state in states]

    def keys_of(self, patient: str, frame: int | None) -> list[Key]:
        return [key for key in self.slices if key[:2] == (patient, frame)]

    def write_table(self) -> None:
        rows = sorted((key, record) for key, record in self.slices.items() if record.state in (DONE, EXCLUDED))
        with whole_file(self.folder / TABLE) as draft, open(draft, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("patient", "frame", "slice", "state", "who", "seconds", "at"))
            for (patient, frame, number), record in rows:
                who = (cell(patient), frame, number, record.state, cell(record.who), record.seconds, record.at)
                writer.writerow(who)
