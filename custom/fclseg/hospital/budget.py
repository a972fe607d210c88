"""A site's privacy budget over all runs. The audit file records what has been spent, and detects missing lines.

Each audit line about a result with noise contains its noise multipliers. The accountant adds them up.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fclseg.hospital.audit import SENT, Audit
from fclseg.hospital.policy import Policy, PolicyError
from fclseg.locks import held
from fclseg.privacy.accountant import epsilon

LOCK = "budget.lock"
LOCK_SECONDS = 600


class Budget:
    """The budget of the site with this folder of runs."""

    def __init__(self, runs: Path):
        self._runs = runs

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the budget, so that two runs cannot both spend what is left."""
        with held(self._runs / LOCK, "the privacy budget", LOCK_SECONDS):
            yield

    def spent(self) -> list[float]:
        """The noise multipliers of everything that has left with noise."""
        return [value for entry in self._sent() for value in entry.get("multipliers", {}).values()]

    def uncounted(self) -> int:
        """The number of results that left with some part that had no noise."""
        return sum(not entry.get("covered", False) for entry in self._sent())

    def after(self, policy: Policy, multipliers: dict[str, float]) -> float | None:
        """Epsilon including these multipliers; None if the policy has no budget. Raises if it exceeds the policy's."""
        if policy.epsilon is None:
            return None
        total = epsilon([*self.spent(), *multipliers.values()], policy.delta)
        if total > policy.epsilon:
            raise PolicyError("the privacy budget of this site is spent")
        return total

    def _sent(self) -> list[dict[str, Any]]:
        return [entry for entry in Audit(self._runs).entries() if entry["outcome"] == SENT]
