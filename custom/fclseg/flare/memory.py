"""A site's memory: what it keeps on its own disk between two tasks.

Every task may run in a new process, a site may be restarted, and a server that died asks for its last round again. All
three are the same case here: a task of round r starts from the newest state of a round before r. Older states are kept
for that: one more than the server has checkpoints, since a site may have finished the round in which the server died.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fclseg.flare.tensors import KEPT_CHECKPOINTS, State, StateError, read_state, write_state
from fclseg.locks import held

KEPT_ROUNDS = KEPT_CHECKPOINTS + 1
STATE, GLOBAL, FEEDBACK = "round", "global", "feedback"
"""The kinds of files, each with the round in its name: where the site stood, what came down, what rounding lost."""
LOCK_SECONDS = 600
"""How long a task waits for one of an earlier process that still trains."""


@dataclass
class SiteState:
    """Where a site stood after a round."""

    round_number: int
    method: State
    optimizer: State

    def component(self, name: str) -> State:
        """One component out of the method's whole state."""
        prefix = f"{name}."
        found = {key.removeprefix(prefix): tensor for key, tensor in self.method.items() if key.startswith(prefix)}
        if not found:
            raise StateError(f"the site's state has no component '{name}': start the run over")
        return found


class SiteMemory:
    """The folder ``runs/<run>/sites/<site>``; ``run_id`` tells a run from one of its name that was started over."""

    def __init__(self, folder: Path, run_id: str):
        self.folder, self.run_id = folder, run_id

    def save(self, state: SiteState) -> None:
        first = not any(_round_of(path) < state.round_number for path in self._paths())
        self._keep(STATE, state.round_number, {"method": state.method, "optimizer": state.optimizer}, first=first)

    def load_before(self, round_number: int) -> SiteState | None:
        """Where the site stood when the round began; None when it had not trained in this run yet.

        A site that did train but no longer knows is refused: it would start anew among trained networks.
        """
        for path in reversed(self._paths()):
            if _round_of(path) >= round_number:
                continue
            states, info = read_state(path)
            if info["run_id"] == self.run_id:
                return SiteState(info["round"], states["method"], states.get("optimizer", {}))
            path.unlink()  # left by a run that was started over
        if round_number and (later := self._paths()):
            _, info = read_state(later[0])
            if info["run_id"] == self.run_id and not info.get("first", True):
                raise StateError(
                    f"{self.folder} has no state from before round {round_number}: restore a backup of it or of the "
                    "server's newest checkpoint, or delete it and the site takes part like one that had been absent"
                )
        return None

    def keep_global(self, round_number: int, components: dict[str, State]) -> None:
        """Keep what came down, so that it crosses the wire once a round and the next one can be coded against it."""
        self._keep(GLOBAL, round_number, components)

    def recall_global(self, round_number: int) -> dict[str, State]:
        """What was kept of this round's networks; empty when there was nothing."""
        return next((states for number, states in self.recall_globals(round_number) if number == round_number), {})

    def recall_globals(self, round_number: int) -> Iterator[tuple[int, dict[str, State]]]:
        """What came down in this round and before, newest first, as far as it is kept."""
        return self._recall(GLOBAL, round_number)

    def keep_feedback(self, round_number: int, components: dict[str, State]) -> None:
        """Keep what rounding lost of the components that this round sent (error feedback)."""
        self._keep(FEEDBACK, round_number, components)

    def recall_feedback(self, round_number: int) -> dict[str, State]:
        """What rounding had lost when the round began."""
        return next((states for _, states in self._recall(FEEDBACK, round_number - 1)), {})

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for one task, so that a process that outlived a killed run cannot write in between."""
        with held(self.folder / "lock", f"the site's memory {self.folder}", LOCK_SECONDS):
            yield

    def _keep(self, kind: str, round_number: int, states: dict[str, State], **info: bool) -> None:
        """Write a round's file and remove those that are too old, or later: of a run that was started over, or that the
        server took up again from an earlier round."""
        path = self.folder / f"{kind}-{round_number:04d}.safetensors"
        write_state(path, states, {"round": round_number, "run_id": self.run_id, **info})
        for later in [path for path in self._paths(kind) if _round_of(path) > round_number]:
            later.unlink(missing_ok=True)
        for old in self._paths(kind)[:-KEPT_ROUNDS]:
            old.unlink(missing_ok=True)

    def _recall(self, kind: str, newest: int) -> Iterator[tuple[int, dict[str, State]]]:
        """This run's files of a kind up to a round, newest first."""
        for path in reversed(self._paths(kind)):
            if _round_of(path) <= newest:
                states, info = read_state(path)
                if info["run_id"] == self.run_id:
                    yield info["round"], states

    def _paths(self, kind: str = STATE) -> list[Path]:
        return sorted(self.folder.glob(f"{kind}-*.safetensors"))


def _round_of(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
