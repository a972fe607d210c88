"""Weighted averaging of a component over sites, F = sum_c n_c / n f_c (Eq. byol_online_agg).

The result does not depend on the order in which sites answer: they are summed in the order of their names, in float64.
Each n_c x is exact there (n_c is a whole number of samples, x a float32), and the mean is rounded to float32 once.

Nothing is computed before the ``result``: then a block of numbers passes through all sites while it is in the
processor's cache, because memory access is the bottleneck. A block may contain many small tensors, so that they cost no
time of their own.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from fclseg.errors import FCLSegError, PublicError
from fclseg.federation.states import Arrays, check_state

BLOCK = 1 << 17
"""Number of values that are averaged at once. Larger blocks leave the cache, smaller ones cost calls."""

MOST_SAMPLES = 10**8
"""More slices than any hospital has. With ``states.MOST_COUNTED``, weighted sums of counters stay within int64."""


class WeightedMean:
    """``add`` what each site sent, then read the ``result``. Until then, the arrays must not be changed.

    ``like`` defines names, shapes and dtypes of a contribution; by default the first one does. Integer
    counters (BatchNorm's ``num_batches_tracked``) become the weighted mean rounded to the nearest whole number.
    """

    def __init__(self, component: str, like: Mapping[str, np.ndarray] | None = None):
        self.component = component
        self.total_weight = 0
        self._like: Mapping[str, np.ndarray] = like or {}
        self._added: list[tuple[str, Arrays, int]] = []

    def add(self, state: Mapping[str, np.ndarray], weight: int, site: str = "") -> None:
        """Add one site's component with its number of samples. A refused component leaves the mean unchanged."""
        check_samples(weight, site)
        check_state(state, self._like or state, site, self.component)
        self._like = self._like or state
        self._added.append((site, dict(state), weight))
        self.total_weight += weight

    def result(self) -> Arrays:
        """The mean in the dtype of the contributions, rounded once."""
        if not self.total_weight:
            raise FCLSegError(f"no site sent component '{self.component}': there is nothing to average")
        result = {name: np.empty_like(like, order="C") for name, like in self._like.items()}
        floats = [name for name, like in self._like.items() if like.dtype.kind == "f"]
        for name in self._like.keys() - set(floats):
            count = sum(state[name].astype(np.int64) * weight for _, state, weight in self._added)
            result[name][...] = (2 * count + self.total_weight) // (2 * self.total_weight)
        self._average([result[name].reshape(-1) for name in floats], floats)
        return result

    def _average(self, means: list[np.ndarray], names: list[str]) -> None:
        """Write the means of these tensors, each as one flat vector."""
        added = sorted(self._added, key=lambda one: one[0])
        sites = [([state[name].reshape(-1) for name in names], weight) for _, state, weight in added]
        buffers = np.empty((2, BLOCK))
        for pieces in _blocks([mean.size for mean in means]):
            total, term = buffers[:, : pieces[-1].place.stop]
            for number, (vectors, weight) in enumerate(sites):
                values = term if number else total
                for piece in pieces:
                    values[piece.place] = vectors[piece.tensor][piece.part]
                values *= weight
                if number:
                    total += values
            total /= self.total_weight
            for piece in pieces:
                means[piece.tensor][piece.part] = total[piece.place]


class Piece(NamedTuple):
    """A part of a tensor and its place in a block."""

    tensor: int
    part: slice
    place: slice


def _blocks(sizes: list[int]) -> Iterator[list[Piece]]:
    """Blocks that cover tensors of these sizes one after the other."""
    pieces: list[Piece] = []
    filled = 0
    for tensor, size in enumerate(sizes):
        start = 0
        while start < size:
            length = min(size - start, BLOCK - filled)
            pieces.append(Piece(tensor, slice(start, start + length), slice(filled, filled + length)))
            start, filled = start + length, filled + length
            if filled == BLOCK:
                yield pieces
                pieces, filled = [], 0
    if pieces:
        yield pieces


def check_samples(count: object, site: str = "") -> int:
    """A site's number of samples n_c. Raises unless it is a whole number of plausible size."""
    if type(count) is not int or not 1 <= count <= MOST_SAMPLES:
        raise PublicError(f"{site or 'a site'}: {count!r:.40} is not a number of samples: it must be 1, 2, 3 ...")
    return count
