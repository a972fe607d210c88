"""The log of the inbox: times, states and hashes of studies; no names, numbers, UIDs or descriptions of series."""

import sys
import time
from pathlib import Path

from fclseg.errors import DataError
from fclseg.files import append_line
from fclseg.text import printable


class Log:
    def __init__(self, path: Path | None = None):
        self.path = path

    def __call__(self, text: str) -> None:
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(text)}"
        print(line, file=sys.stderr, flush=True)
        if self.path is not None:
            try:
                append_line(self.path, line)
            except DataError:  # a full disk must not stop the receiver
                return
