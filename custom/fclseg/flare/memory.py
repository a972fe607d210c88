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
        self._global = folder / "global.safetensors"

    def save(self, state: SiteState) -> None:
        path = self.folder / f"round-{state.round_number:04d}.safetensors"
        first = not any(_round_of(path) < state.round_number for path in self._paths())
        info = {"round": state.round_number, "run_id": self.run_id, "first": first}
        write_state(path, {"method": state.method, "optimizer": state.optimizer}, info)
        later = [path for path in self._paths() if _round_of(path) > state.round_number]
        for gone in later:  # of a run that was started over, or that the server took up again from an earlier round
            gone.unlink(missing_ok=True)
        for old in self._paths()[:-KEPT_ROUNDS]:
            old.unlink(missing_ok=True)

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
        """Keep what the distance task brought, so that the network crosses the wire once a round."""
        write_state(self._global, components, {"round": round_number, "run_id": self.run_id})

    def recall_global(self, round_number: int) -> dict[str, State]:
        """What the distance task of this round brought; empty when there was none."""
        if not self._global.exists():
            return {}
        states, info = read_state(self._global)
        return states if (info["round"], info["run_id"]) == (round_number, self.run_id) else {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for one task, so that a process that outlived a killed run cannot write in between."""
        with held(self.folder / "lock", f"the site's memory {self.folder}", LOCK_SECONDS):
            yield

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("round-*.safetensors"))


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))
