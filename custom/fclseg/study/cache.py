"""Results on disk, one JSON file per cell under its content key: what a killed study resumes from."""

import json
from pathlib import Path
from typing import Any

from fclseg.files import write_text


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
        write_text(self.path(key), json.dumps(result, indent=1))
