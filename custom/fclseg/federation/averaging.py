"""Weighted averaging of a component over sites, F = sum_c n_c / n f_c (Eq. byol_online_agg), as results arrive.

Memory does not grow with the number of sites, and the result does not depend on the order in which sites answer: n_c x
is exact in float64 (n_c is a whole number of samples, x a float32), and each sum is kept as an unevaluated pair of
float64 that carries the rounding error along (Knuth's TwoSum). The pair represents the sum exactly unless the values of
one weight at different sites are more than about twelve orders of magnitude apart.

All floats of a component are one flat vector, so that the many small tensors of a network cost no time of their own.
They are added in place and in blocks that stay in the processor's cache, because memory access is the bottleneck.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from fclseg.errors import FCLSegError, PublicError
from fclseg.federation.states import Arrays, check_state

BLOCK = 1 << 14
"""Number of values added at once. Five blocks of float64 fit into the cache of a core."""

MOST_SAMPLES = 10**8
"""More slices than any hospital has. With ``states.MOST_COUNTED``, weighted sums of counters stay within int64."""


class WeightedMean:
    """``add`` what each site sent, then read the ``result``.

    ``like`` defines names, shapes and dtypes of a contribution; by default the first one does. Integer
    counters (BatchNorm's ``num_batches_tracked``) become the weighted mean rounded to the nearest whole number.
    """

    def __init__(self, component: str, like: Mapping[str, np.ndarray] | None = None):
        self.component = component
        self.total_weight = 0
        self._like: Mapping[str, np.ndarray] = like or {}
        self._sums = self._errors = np.empty(0)  # of all floats
        self._counters: Arrays = {}

    def add(self, state: Mapping[str, np.ndarray], weight: int, site: str = "") -> None:
        """Add one site's component with its number of samples. A refused component leaves the mean unchanged."""
        check_samples(weight, site)
        if not self._like:
            self._like = {name: np.empty_like(array) for name, array in state.items()}
        check_state(state, self._like, site, self.component)
        # Allocate all memory first, so that nothing can fail once a number has been added.
        floats = np.concatenate([np.empty(0, np.float32), *(state[name].reshape(-1) for name in self._floats)])
        counts = {name: state[name].reshape(-1).astype(np.int64) for name in self._like.keys() - set(self._floats)}
        first, work = not self.total_weight, np.empty((3, BLOCK))
        if first:
            self._sums, self._errors = np.empty(floats.size), np.zeros(floats.size)
            self._counters = {name: np.zeros_like(count) for name, count in counts.items()}
        for part in _blocks(floats.size):
            term, *free = work[:, : part.stop - part.start]
            term = self._sums[part] if first else term
            term[:] = floats[part]
            term *= weight
            if not first:
                add_exactly(self._sums[part], self._errors[part], term, *free)
        for name, count in counts.items():
            self._counters[name] += count * weight
        self.total_weight += weight

    def result(self) -> Arrays:
        """The mean in the dtype of the contributions, rounded once."""
        if not self.total_weight:
            raise FCLSegError(f"no site sent component '{self.component}': there is nothing to average")
        kinds = {self._like[name].dtype for name in self._floats}
        floats = np.empty(self._sums.size, kinds.pop() if len(kinds) == 1 else np.float64)
        for part in _blocks(floats.size):
            exact = self._sums[part] + self._errors[part]
            floats[part] = np.divide(exact, self.total_weight, out=exact)
        flat = {name: self._rounded(count) for name, count in self._counters.items()}
        start = 0
        for name in self._floats:
            start, begin = start + self._like[name].size, start
            flat[name] = floats[begin:start]
        return {
            name: flat[name].astype(like.dtype, copy=False).reshape(like.shape) for name, like in self._like.items()
        }

    @property
    def _floats(self) -> list[str]:
        return [name for name, like in self._like.items() if like.dtype.kind == "f"]

    def _rounded(self, count: np.ndarray) -> np.ndarray:
        return (2 * count + self.total_weight) // (2 * self.total_weight)


def _blocks(size: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


def check_samples(count: object, site: str = "") -> int:
    """A site's number of samples n_c. Raises unless it is a whole number of plausible size."""
    if type(count) is not int or not 1 <= count <= MOST_SAMPLES:
        raise PublicError(f"{site or 'a site'}: {count!r:.40} is not a number of samples: it must be 1, 2, 3 ...")
    return count


def add_exactly(
    total: np.ndarray, error: np.ndarray, term: np.ndarray, work: np.ndarray, more_work: np.ndarray
) -> None:
    """Add ``term`` to ``total``, and the rounding error of this addition to ``error`` (Knuth's TwoSum), in place.

    The last three arrays are overwritten.
    """
    rounded = np.add(total, term, out=work)
    added = np.subtract(rounded, total, out=more_work)  # what arrived of the term
    term -= added
    total -= np.subtract(rounded, added, out=more_work)  # what was lost of the total
    term += total
    error += term
    total[:] = rounded
