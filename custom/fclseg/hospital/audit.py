"""A site's audit file: one line for everything that left and everything that was refused. Lines are only appended.

Each line contains the checksum of the line before it, so that a changed or removed line is detected.
"""

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from fclseg.documents import UNUSABLE
from fclseg.errors import FCLSegError
from fclseg.files import private_folder
from fclseg.locks import held

FILE = "audit.jsonl"
SENT, REFUSED = "sent", "refused"
LOCK_SECONDS = 60
CHUNK = 2**16
"""Bytes to look for the last line in, at first."""


class Audit:
    """The file ``audit.jsonl`` in a site's folder of runs."""

    def __init__(self, runs: Path):
        self.path = runs / FILE

    def note(self, **entry: Any) -> None:
        """Append a line. It is on disk when this returns, before the data it describes leaves."""
        private_folder(self.path.parent)
        with held(self.path.with_suffix(".lock"), "the audit file", LOCK_SECONDS):
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            line = json.dumps({"time": stamp, **entry, "before": _checksum(self._last())}) + "\n"
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.write(descriptor, line.encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def entries(self) -> list[dict[str, Any]]:
        """All lines, oldest first. Raises if a line was changed or removed."""
        if not self.path.exists():
            return []
        found, before = [], ""
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                entry = json.loads(line)
                intact = entry.pop("before") == _checksum(before)
            except UNUSABLE:
                intact = False
            if not intact:
                raise FCLSegError(
                    f"{self.path} was changed in or before line {number}: find out by whom; later lines prove nothing"
                )
            found.append(entry)
            before = line
        return found

    def _last(self) -> str:
        """The last line, read from the end because the file may cover years."""
        if not self.path.exists():
            return ""
        with open(self.path, "rb") as file:
            size, read = file.seek(0, os.SEEK_END), CHUNK
            while True:
                file.seek(max(0, size - read))
                _, newline, last = file.read().rstrip(b"\n").rpartition(b"\n")
                if newline or read >= size:
                    return last.decode()
                read *= 2


def _checksum(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()
