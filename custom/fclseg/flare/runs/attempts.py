"""How long the server waits before it continues an interrupted run."""

from collections.abc import Hashable

PAUSES = (2.0, 10.0, 60.0, 300.0, 900.0)
"""Seconds before the first, second, ... attempt that follows without a finished round. The last one is repeated."""
MOST_ATTEMPTS = 24
"""About five hours. A run that cannot finish a round in that time needs a person."""


class Attempts:
    """Counts the attempts of each run since its last finished round."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[int, int]] = {}

    def pause(self, run: Hashable, rounds: int) -> float | None:
        """Seconds until the next attempt of a run with ``rounds`` finished rounds; None if there is to be none."""
        before, made = self._made.get(run, (rounds, 0))
        made = made + 1 if rounds == before else 1
        self._made[run] = rounds, made
        return None if made > MOST_ATTEMPTS else PAUSES[min(made, len(PAUSES)) - 1]
