"""Which sites take part in a round: drawing C_r, and sites that stop answering and come back."""

import math
from collections.abc import Mapping

import torch

from fclseg.randomness import generator

NAMED = 5
"""Sites whose reasons an error names. With a hundred sites the first few usually tell."""


def reasons(failures: Mapping[str, str]) -> str:
    """Why sites did not answer, in one line."""
    if not failures:
        return "no site is present"
    named = [f"{site}: {why}" for site, why in sorted(failures.items())[:NAMED]]
    return "; ".join(named) + (f"; and {more} other sites" if (more := len(failures) - NAMED) > 0 else "")


class Attendance:
    """A site that timed out is not asked again, so that it delays only one round. It is back once it asks for work."""

    def __init__(self, sites: list[str], fraction: float, seed: int):
        self.sites, self.fraction, self.seed = sorted(sites), fraction, seed
        self.silent: set[str] = set()

    def draw(self, round_number: int) -> list[str]:
        """C_r: a random fraction of all sites, drawn from (seed, round), so that a repeated round asks the same sites.

        A silent site is replaced by the next site in the drawn order.
        """
        order = torch.randperm(len(self.sites), generator=generator(self.seed, "server", round_number, "clients"))
        present = [self.sites[index] for index in order if self.sites[index] not in self.silent]
        return sorted(present[: max(1, math.ceil(self.fraction * len(self.sites) - 1e-9))])

    def fell_silent(self, site: str) -> None:
        self.silent.add(site)

    def heard(self, site: str) -> bool:
        """Record that the site is alive. Returns True if it had been silent."""
        if site not in self.silent:
            return False
        self.silent.discard(site)
        return True
