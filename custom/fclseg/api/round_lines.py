"""One line per finished round of a run, read from its folder."""

import time
from pathlib import Path

from fclseg.engine.run_folder import RunFolder, describe


class RoundLines:
    """Prints the lines of the rounds that have finished since the last call, with the time that is left."""

    def __init__(self, folder: Path, rounds: int):
        self._folder, self._rounds = RunFolder(folder), rounds
        self._first = self._next = len(self._folder.rounds())
        self._started = time.monotonic()

    def __call__(self) -> None:
        for record in self._folder.rounds()[self._next :]:
            self._next += 1
            pace = (time.monotonic() - self._started) / (self._next - self._first)
            print(f"{describe(record, self._rounds)}  eta {_clock(pace * (self._rounds - self._next))}", flush=True)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
