"""Results on disk, one JSON file per cell under its content key: what a killed study resumes from."""

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, text: str) -> None:
    """The file is either the old one or the whole new one, whatever happens in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


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
        """The result, or None when the cell has not run (a file that is no JSON counts as not run)."""
        try:
            return json.loads(self.path(key).read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def put(self, key: str, result: dict[str, Any]) -> None:
        write_atomically(self.path(key), json.dumps(result, indent=1))
