"""A progress line for a study, with a time estimate from measured cells only."""

import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean
from typing import TextIO

from fclseg.study.cells import Cell


def duration(seconds: float) -> str:
    """A duration in readable form."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Estimate:
    """Time left, from the durations of finished cells of the same kind."""

    def __init__(self, workers: int):
        self.workers = workers
        self.measured: dict[str, list[float]] = defaultdict(list)

    def add(self, kind: str, seconds: float) -> None:
        self.measured[kind].append(seconds)

    def left(self, cells: Iterable[Cell]) -> tuple[float, list[str]]:
        """Seconds for the cells of kinds that have been measured, and the kinds that have not."""
        seconds, unknown = 0.0, []
        for cell in cells:
            if cell.kind in self.measured:
                seconds += fmean(self.measured[cell.kind]) / (1 if cell.exclusive else self.workers)
            elif cell.kind not in unknown:
                unknown.append(cell.kind)
        return seconds, unknown


class Progress:
    """Prints the line: in place on a terminal, otherwise as a new line at most every ``interval`` seconds."""

    def __init__(self, total: int, estimate: Estimate, interval: float = 15.0, stream: TextIO | None = None):
        self.total, self.estimate, self.interval = total, estimate, interval
        self.stream = stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.last = 0.0

    def show(self, left: list[Cell], now_running: list[str], failed: int = 0) -> None:
        if not self.terminal and left and time.monotonic() - self.last < self.interval:
            return
        self.last = time.monotonic()
        text = self.line(left, now_running, failed)
        print(f"\r\033[K{text}" if self.terminal else text, end="" if self.terminal else "\n", file=self.stream)
        self.stream.flush()

    def line(self, left: list[Cell], now_running: list[str], failed: int = 0) -> str:
        seconds, unknown = self.estimate.left(left)
        parts = [f"{self.total - len(left)}/{self.total} cells"]
        if failed:
            parts.append(f"{failed} failed")
        if left:
            parts.append(self._time_left(seconds, unknown))
            parts.append("now: " + (now_running[0] if now_running else "-"))
        return " | ".join(parts)

    @staticmethod
    def _time_left(seconds: float, unknown: list[str]) -> str:
        if not unknown:
            return f"about {duration(seconds)} left"
        not_yet = unknown[0] if len(unknown) == 1 else f"{len(unknown)} kinds of cells"
        return (f"more than {duration(seconds)} left: " if seconds else "") + f"{not_yet} not yet timed"

    def close(self) -> None:
        if self.terminal:
            print(file=self.stream)
