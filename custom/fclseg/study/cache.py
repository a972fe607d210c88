"""Results on disk, one JSON file per cell under its content key. An interrupted study resumes from them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fclseg.errors import FCLSegError
from fclseg.files import private_folder, write_text
from fclseg.study.cells import FORMAT

AGAIN = "remove it, and run the same command to train this cell again"
"""What to do about a damaged result."""

MARK = "format"
"""The file that says in which format the results of a folder are."""


class Cache:
    """Results by key, with a folder for the other files of a cell (its prediction, its run)."""

    def __init__(self, root: Path):
        self.root = Path(root)

    def path(self, key: str) -> Path:
        return self.root / "cells" / key[:2] / f"{key}.json"

    def check(self) -> None:
        """Refuse a folder with results of another format: their keys and contents mean something else."""
        mark = self.root / MARK
        found = mark.read_text(encoding="utf-8").strip() if mark.is_file() else None
        if (found or (self.root / "cells").exists()) and found != str(FORMAT):
            raise FCLSegError(
                f"{self.root} has results of {f'format {found}' if found else 'an earlier version'}, and this version "
                f"uses format {FORMAT}: choose another --out; the results stay readable with the version that made them"
            )

    def attachment(self, key: str, suffix: str) -> Path:
        """A file next to the result, for example the prediction of one slice."""
        return self.path(key).with_suffix(suffix)

    def get(self, key: str) -> Any:
        """The result, or None if the cell has not run. A file without a valid result counts as not run."""
        if not self.path(key).is_file():
            return None
        try:
            result = json.loads(self.path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return result if isinstance(result, dict) else None

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Only one study at a time may run cells here: two would train the same cell in the same folder.

        The operating system releases the lock when its process ends. Reading needs no lock.
        """
        private_folder(self.root)
        lock = FileLock(self.root / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise FCLSegError(
                f"another study is running in {self.root}: wait until it has finished, or choose another --out"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def put(self, key: str, result: Mapping[str, Any]) -> None:
        if not (self.root / MARK).exists():
            write_text(self.root / MARK, f"{FORMAT}\n")
        write_text(self.path(key), json.dumps(result, indent=1))
