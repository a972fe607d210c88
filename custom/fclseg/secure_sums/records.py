"""What a site remembers of its secure sums, in files of its own.

Secrets are removed when the next sum begins. The list of survivors that the site signed stays, so that a sum which was
opened once is never opened again for other sites. Training is repeatable: the same run again, under another identity or
name, has the same updates. So the site also remembers, over all runs, with whom each update was summed.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fclseg.documents import read_json, understood
from fclseg.files import whole_file, write_text
from fclseg.secure_sums.occasion import Occasion, SumError


@dataclass
class Record:
    """One sum at one site."""

    run: str
    round: int
    task: str
    attempt: int
    seeds: dict[str, str] = field(default_factory=dict)
    adverts: dict[str, Any] = field(default_factory=dict)
    own_share: str = ""
    inbox: dict[str, str] = field(default_factory=dict)
    context: str = ""
    update: str = ""  # the name of what is summed
    fewest: int = 0  # sites in the sum, when the vector was masked
    agreed: list[str] = field(default_factory=list)  # survivors that the site has signed, in any attempt
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)  # step -> {digest of the request, reply}

    def answered(self, step: str, request: str) -> Any:
        """The reply to exactly this request, if it was given before; None if the step is new."""
        known = self.replies.get(step)
        if known and known["request"] != request:
            raise SumError(f"step '{step}' of this sum was already answered for another request: it is refused")
        return known["reply"] if known else None


class SumRecords:
    """The folder of a site's sums in the runs of one name. ``summed``: the folder of the updates of all its runs; None:
    a simulation, whose sites are all of one person."""

    def __init__(self, folder: Path, summed: Path | None = None):
        self.folder, self.summed = folder, summed

    def begin(self, occasion: Occasion, seeds: dict[str, str]) -> Record:
        """The record of a new attempt, or the existing one if this is the same attempt again."""
        known = self._read(occasion)
        if known and known.attempt == occasion.attempt:
            return known
        if known and known.attempt > occasion.attempt:
            raise SumError("this attempt at a sum is older than one that this site has seen: it is refused")
        self._forget_secrets()
        run, number, task = occasion.place
        record = Record(run, number, task, occasion.attempt, seeds, agreed=known.agreed if known else [])
        self._write(record)
        return record

    def current(self, occasion: Occasion) -> Record:
        record = self._read(occasion)
        if record is None or record.attempt != occasion.attempt or not record.seeds:
            raise SumError("this site has no keys for this attempt at a sum: ask for them first")
        return record

    def reply(self, record: Record, step: str, request: str, reply: Any) -> Any:
        """Write an answer to disk before it leaves."""
        record.replies[step] = {"request": request, "reply": reply}
        self._write(record)
        return reply

    def open_update(self, update: str, survivors: list[str]) -> None:
        """Note with whom an update is summed. Raises if it was summed with others before: the difference of the two
        sums would be the update of a single site."""
        if self.summed is None or not update:
            return
        path, with_whom = self.summed / f"{update[:32]}.json", json.dumps(survivors)
        if not path.exists():
            write_text(path, with_whom)
        elif path.read_text(encoding="utf-8") != with_whom:
            raise SumError("this update was already summed with other sites: start a new run with another seed")

    def keep_vector(self, record: Record, parts: dict[str, np.ndarray]) -> None:
        with whole_file(self._path(record).with_suffix(".npz")) as draft:
            np.savez(draft, **parts)  # type: ignore[arg-type]

    def load_vector(self, record: Record) -> dict[str, np.ndarray]:
        with np.load(self._path(record).with_suffix(".npz")) as stored:
            return {name: stored[name] for name in stored.files}

    def _forget_secrets(self) -> None:
        for path in self.folder.glob("*.npz"):
            path.unlink()
        for path in self.folder.glob("*.json"):
            record = self._load(path)
            if record.seeds:
                self._write(Record(record.run, record.round, record.task, record.attempt, agreed=record.agreed))

    def _path(self, record: Record | Occasion) -> Path:
        """Another run of the same name has other files: it must not make the site forget what it has signed."""
        return self.folder / f"{record.run}-{record.task}-{record.round:04d}.json"

    def _read(self, occasion: Occasion) -> Record | None:
        path = self._path(occasion)
        return self._load(path) if path.exists() else None

    @staticmethod
    def _load(path: Path) -> Record:
        with understood(path, "remove it if the run was started over"):
            return Record(**read_json(path))

    def _write(self, record: Record) -> None:
        write_text(self._path(record), json.dumps(asdict(record)))
