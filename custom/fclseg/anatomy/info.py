"""``Info.cfg`` beside the images of a patient: lines such as ``Group: DCM`` and ``Centre: 2``."""

import contextlib
from pathlib import Path

INFO = "Info.cfg"


def read_info(path: Path) -> dict[str, str]:
    """The entries of a file; none if it is missing or cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        return {name.strip(): value.strip() for name, value in pairs}
    return {}
