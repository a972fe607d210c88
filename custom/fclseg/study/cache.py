"""Results on disk, one JSON file per cell under its content key: what a killed study resumes from."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fclseg.errors import FCLSegError
from fclseg.files import private_folder, write_text

AGAIN = "remove it, and the same command trains this cell again"
"""What to do about a damaged result."""


class Cache:
    """Results by key, with a folder for what else a cell leaves behind (its prediction, its run)."""

    def __init__(self, root: Path):
        self.root = Path(root)

    def path(self, key: str) -> Path:
        return self.root / "cells" / key[:2] / f"{key}.json"

    def attachment(self, key: str, suffix: str) -> Path:
        """A file beside the result, for example the prediction of one slice."""
        return self.path(key).with_suffix(suffix)

    def get(self, key: str) -> dict[str, Any] | None:
        """The result, or None when the cell has not run (a file that holds no result counts as not run)."""
        if not self.path(key).is_file():
            return None
        try:
            result = json.loads(self.path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return result if isinstance(result, dict) else None

    @contextmanager
    def filling(self) -> Iterator[None]:
        """One study at a time may run cells here: two would train the same cell in the same folder.

        The system frees the lock with its holder, however that ends. Reading needs none.
        """
        private_folder(self.root)
        with open(self.root / ".lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FCLSegError(
                    f"another study is running in {self.root}: wait until it has ended, or choose another --out"
                ) from None
            yield

    def put(self, key: str, result: dict[str, Any]) -> None:
        write_text(self.path(key), json.dumps(result, indent=1))
