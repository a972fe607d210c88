"""Which sites take part in a round: the draw of C_r, and sites that fall silent and come back."""

import math

import torch

from fclseg.randomness import generator


class Attendance:
    """A site that let a time-out pass is not asked again, so that it costs once; when it asks for work, it is back."""

    def __init__(self, sites: list[str], fraction: float, seed: int):
        self.sites, self.fraction, self.seed = sorted(sites), fraction, seed
        self.silent: set[str] = set()

    def draw(self, round_number: int) -> list[str]:
        """C_r: a random share of all sites, from (seed, round) alone, so that a repeated round asks the same ones.

        Places of silent sites go to the next in the draw.
        """
        order = torch.randperm(len(self.sites), generator=generator(self.seed, "server", round_number, "clients"))
        present = [self.sites[index] for index in order if self.sites[index] not in self.silent]
        return sorted(present[: max(1, math.ceil(self.fraction * len(self.sites) - 1e-9))])

    def fell_silent(self, site: str) -> None:
        self.silent.add(site)

    def heard(self, site: str) -> bool:
        """Note a sign of life; True when the site had been silent."""
        if site not in self.silent:
            return False
        self.silent.discard(site)
        return True
