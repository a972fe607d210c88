"""What one secure sum is for. Every key, signature and mask is bound to it, so nothing can be used a second time."""

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from fclseg.errors import PublicError

FEWEST = 3
"""With two sites, each could subtract its own part from the sum and would know the other's."""


class SumError(PublicError):
    """A step of a secure sum that is refused. The text contains nothing secret."""


@dataclass(frozen=True)
class Occasion:
    """One attempt at the sum of one task of one round. ``attempt`` grows, also when a server is started again."""

    run: str
    round: int
    task: str
    attempt: int

    @property
    def place(self) -> tuple[str, int, str]:
        """The occasion without the attempt: a sum that is opened at most once, or again for the same sites."""
        return self.run, self.round, self.task


def statement(purpose: str, occasion: Occasion, *parts: Any) -> bytes:
    """Bytes to sign or to derive keys from: different contents never give the same bytes."""
    return json.dumps([purpose, asdict(occasion), *parts], sort_keys=True, separators=(",", ":")).encode()


def digest(*parts: Any) -> str:
    """A short name for public data, the same at every party."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def threshold(sites: int) -> int:
    """The number of sites that can remove masks together: more than two thirds.

    Two groups of this size have more than a third of all sites in common. So the server cannot have two different lists
    of survivors signed unless a third of the sites helps it (Bonawitz et al. 2017, theorem 6.5).
    """
    return 2 * sites // 3 + 1


def needed(sites: int, fewest: int) -> int:
    """The number of survivors without which a sum is not opened."""
    return max(threshold(sites), fewest, FEWEST)


def check_survivors(survivors: Collection[str], sharing: Collection[str], roster: int, fewest: int) -> None:
    """Refuse a list of survivors that is too short, repeats a name or names others than those who share masks."""
    least = needed(roster, fewest)
    if len(set(survivors)) != len(survivors) or not set(survivors) <= set(sharing):
        raise SumError("the list of survivors names sites that take no part in this sum: nothing is revealed")
    if len(survivors) < least:
        raise SumError(f"only {len(survivors)} sites would be in the sum, but it needs {least}: nothing is revealed")
