"""A site's privacy budget over all runs. What has been spent is in the audit file, where no line is lost unnoticed.

Each line of the audit that tells of a result with noise has its noise multipliers; the accountant adds them up.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fclseg.flare.audit import SENT, Audit
from fclseg.flare.policy import Policy, PolicyError
from fclseg.locks import held
from fclseg.privacy.accountant import epsilon

LOCK = "budget.lock"
LOCK_SECONDS = 600


class Budget:
    """Of the site with this folder of runs."""

    def __init__(self, runs: Path):
        self._runs = runs

    @contextmanager
    def held(self) -> Iterator[None]:
        """Two runs must not both spend what is left."""
        with held(self._runs / LOCK, "the privacy budget", LOCK_SECONDS):
            yield

    def spent(self) -> list[float]:
        """The noise multipliers of everything that has left with noise."""
        return [value for entry in self._sent() for value in entry.get("multipliers", {}).values()]

    def uncounted(self) -> int:
        """How many results left with something in them that had no noise."""
        return sum(not entry.get("covered", False) for entry in self._sent())

    def after(self, policy: Policy, multipliers: dict[str, float]) -> float | None:
        """Epsilon with these too; refuses where it is more than the policy's. None where the policy has no budget."""
        if policy.epsilon is None:
            return None
        total = epsilon([*self.spent(), *multipliers.values()], policy.delta)
        if total > policy.epsilon:
            raise PolicyError("the privacy budget of this site is spent")
        return total

    def _sent(self) -> list[dict[str, Any]]:
        return [entry for entry in Audit(self._runs).entries() if entry["outcome"] == SENT]
