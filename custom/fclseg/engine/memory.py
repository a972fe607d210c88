"""A site's memory: what it keeps on its own disk between tasks.

Every task may run in a new process, a site may be restarted, and a server that died repeats its last round. All three
cases are handled the same way: a task of round r starts from the newest state of a round before r. The site keeps one
more old state than the server has checkpoints, because it may have finished the round in which the server died.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fclseg.engine.state_files import KEPT_CHECKPOINTS, StateError, read_state, write_state
from fclseg.locks import held
from fclseg.networks.loading import State

LOG = logging.getLogger(__name__)
KEPT_ROUNDS = KEPT_CHECKPOINTS + 1
STATE, GLOBAL, FEEDBACK = "round", "global", "feedback"
"""The kinds of files, each with the round in its name: site state, received networks, rounding errors."""
LOCK_SECONDS = 600
"""How long a task waits for an earlier process that is still training."""


@dataclass
class SiteState:
    """A site's state after a round."""

    round_number: int
    method: State
    optimizer: State

    def component(self, name: str) -> State:
        """One component of the method's state."""
        prefix = f"{name}."
        found = {key.removeprefix(prefix): tensor for key, tensor in self.method.items() if key.startswith(prefix)}
        if not found:
            raise StateError(f"the site's state has no component '{name}': start the run over")
        return found


class SiteMemory:
    """The folder ``runs/<run>/sites/<site>``; ``run_id`` changes when a run is started over under the same name."""

    kept = KEPT_ROUNDS
    on_disk = True

    def __init__(self, folder: Path, run_id: str):
        self.folder, self.run_id = folder, run_id

    def save(self, state: SiteState) -> None:
        first = not any(number < state.round_number for number in self._numbers(STATE))
        self._keep(STATE, state.round_number, {"method": state.method, "optimizer": state.optimizer}, first=first)

    def load_before(self, round_number: int) -> SiteState | None:
        """The site's state at the start of the round; None if it has not trained in this run yet.

        Raises if the site has trained but its state is lost: it would start from scratch among trained networks.
        """
        for number in reversed(self._numbers(STATE)):
            if number >= round_number:
                continue
            if (read := self._intact(number)) is None:
                continue
            states, info = read
            if info["run_id"] == self.run_id:
                return SiteState(info["round"], states["method"], states.get("optimizer", {}))
            self._remove(STATE, number)  # left by a run that was started over
        if round_number and (later := self._numbers(STATE)):
            _, info = self._read(STATE, later[0])
            if info["run_id"] == self.run_id and not info.get("first", True):
                raise StateError(
                    f"{self.folder} has no state from before round {round_number}: restore a backup of it or of the "
                    "server's newest checkpoint, or delete it to take part like a site that was absent"
                )
        return None

    def _intact(self, number: int) -> tuple[dict[str, State], dict[str, Any]] | None:
        """A state; None for a damaged one if there is an older one, which is used instead: the site then takes part
        like one that was absent for a round."""
        try:
            return self._read(STATE, number)
        except StateError as error:
            older = [other for other in self._numbers(STATE) if other < number]
            if not older:
                raise
            LOG.warning("%s; the site continues with its state of round %d", error, older[-1] + 1)
            return None

    def keep_global(self, round_number: int, components: dict[str, State]) -> None:
        """Keep the received networks: they are sent only once per round, and the next ones are encoded against them."""
        self._keep(GLOBAL, round_number, components)

    def recall_global(self, round_number: int) -> dict[str, State]:
        """The networks kept for this round; empty if there are none."""
        return next((states for number, states in self.recall_globals(round_number) if number == round_number), {})

    def recall_globals(self, round_number: int) -> Iterator[tuple[int, dict[str, State]]]:
        """The networks received in this round and before that are still kept, newest first."""
        return self._recall(GLOBAL, round_number)

    def keep_feedback(self, round_number: int, components: dict[str, State]) -> None:
        """Keep the rounding errors of the components sent in this round (error feedback)."""
        self._keep(FEEDBACK, round_number, components)

    def recall_feedback(self, round_number: int) -> dict[str, State]:
        """The rounding errors at the start of the round."""
        return next((states for _, states in self._recall(FEEDBACK, round_number - 1)), {})

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder for one task, so that a process that outlived a killed run cannot write to it."""
        with held(self.folder / "lock", f"the site's memory {self.folder}", LOCK_SECONDS):
            yield

    def _keep(self, kind: str, round_number: int, states: dict[str, State], **info: bool) -> None:
        """Write a round's file. Remove files that are too old, and files of later rounds: they belong to a run that was
        started over or that the server resumed from an earlier round."""
        self._write(kind, round_number, states, {"round": round_number, "run_id": self.run_id, **info})
        numbers = self._numbers(kind)
        for number in numbers:
            if number > round_number:
                self._remove(kind, number)
        for old in [number for number in numbers if number <= round_number][: -self.kept]:
            self._remove(kind, old)

    def _recall(self, kind: str, newest: int) -> Iterator[tuple[int, dict[str, State]]]:
        """This run's files of a kind up to a round, newest first."""
        for number in reversed(self._numbers(kind)):
            if number <= newest:
                states, info = self._read(kind, number)
                if info["run_id"] == self.run_id:
                    yield info["round"], states

    def _numbers(self, kind: str) -> list[int]:
        """The rounds that files of a kind belong to, in order."""
        return sorted(int(path.stem.rpartition("-")[2]) for path in self.folder.glob(f"{kind}-*.safetensors"))

    def _path(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number:04d}.safetensors"

    def _read(self, kind: str, number: int) -> tuple[dict[str, State], dict[str, Any]]:
        return read_state(self._path(kind, number))

    def _write(self, kind: str, number: int, states: dict[str, State], info: dict[str, Any]) -> None:
        write_state(self._path(kind, number), states, info)

    def _remove(self, kind: str, number: int) -> None:
        self._path(kind, number).unlink(missing_ok=True)


class VolatileMemory(SiteMemory):
    """The memory of a site in a run that is not written to disk, because repeating it is cheaper."""

    kept = 2  # the current round and the one before
    on_disk = False

    def __init__(self) -> None:
        super().__init__(Path(os.devnull), "")
        self._states: dict[tuple[str, int], tuple[dict[str, State], dict[str, Any]]] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        yield

    def _numbers(self, kind: str) -> list[int]:
        return sorted(number for known, number in self._states if known == kind)

    def _read(self, kind: str, number: int) -> tuple[dict[str, State], dict[str, Any]]:
        return self._states[kind, number]

    def _write(self, kind: str, number: int, states: dict[str, State], info: dict[str, Any]) -> None:
        copies = {part: {name: tensor.clone() for name, tensor in state.items()} for part, state in states.items()}
        self._states[kind, number] = copies, info

    def _remove(self, kind: str, number: int) -> None:
        del self._states[kind, number]
