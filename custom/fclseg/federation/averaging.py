"""Weighted averaging of a component over sites, F = sum_c n_c / n f_c (Eq. byol_online_agg), as results arrive.

Memory does not grow with the number of sites, and the result does not depend on the order in which sites answer: n_c x
is exact in float64 (n_c is a whole number of samples, x a float32), and each sum is kept as an unevaluated pair of
float64 that carries the rounding error along (Knuth's TwoSum). The pair represents the sum exactly unless the values of
one weight at different sites are more than about twelve orders of magnitude apart.

Numbers are added in place and in blocks that stay in the processor's cache, because memory access is the bottleneck.
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
        self._sums: Arrays = {}  # flat: float64, or int64 for counters
        self._errors: Arrays = {}

    def add(self, state: Mapping[str, np.ndarray], weight: int, site: str = "") -> None:
        """Add one site's component with its number of samples. A refused component leaves the mean unchanged."""
        check_samples(weight, site)
        if not self._like:
            self._like = {name: np.empty_like(array) for name, array in state.items()}
        check_state(state, self._like, site, self.component)
        if not self._sums:  # allocate all memory first, so that nothing can fail once a number has been added
            self._sums = {name: np.zeros(like.size, _kind_of_sum(like)) for name, like in self._like.items()}
            self._errors = {name: np.zeros_like(total) for name, total in self._sums.items() if total.dtype.kind == "f"}
        for name in self._like:
            self._add(name, state[name].reshape(-1), weight)
        self.total_weight += weight

    def result(self) -> Arrays:
        """The mean in the dtype of the contributions, rounded once."""
        if not self.total_weight:
            raise FCLSegError(f"no site sent component '{self.component}': there is nothing to average")
        return {name: self._mean(name) for name in self._like}

    def _add(self, name: str, array: np.ndarray, weight: int) -> None:
        """Add one flat contribution to a tensor's sum and rounding error."""
        if name not in self._errors:
            self._sums[name] += array.astype(np.int64) * weight
            return
        for part in _blocks(array.size):
            total, error = two_sum(self._sums[name][part], array[part].astype(np.float64) * weight)
            self._sums[name][part] = total
            self._errors[name][part] += error

    def _mean(self, name: str) -> np.ndarray:
        like, total = self._like[name], self.total_weight
        if name not in self._errors:
            mean = (2 * self._sums[name] + total) // (2 * total)
        else:
            mean = np.empty(like.size, like.dtype)
            for part in _blocks(like.size):
                mean[part] = (self._sums[name][part] + self._errors[name][part]) / total
        return mean.astype(like.dtype, copy=False).reshape(like.shape)


def _kind_of_sum(array: np.ndarray) -> type:
    return np.int64 if np.issubdtype(array.dtype, np.integer) else np.float64


def _blocks(size: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, size, BLOCK))


def check_samples(count: object, site: str = "") -> int:
    """A site's number of samples n_c. Raises unless it is a whole number of plausible size."""
    if type(count) is not int or not 1 <= count <= MOST_SAMPLES:
        raise PublicError(f"{site or 'a site'}: {count!r:.40} is not a number of samples: it must be 1, 2, 3 ...")
    return count


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(s, e) with s = a + b rounded and e its rounding error, so that s + e = a + b exactly (Knuth)."""
    s = a + b
    b_rounded = s - a
    return s, (a - (s - b_rounded)) + (b - b_rounded)
