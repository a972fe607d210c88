"""Weighted averaging of a component over sites, F = sum_c n_c / n f_c (Eq. byol_online_agg), as results arrive.

Memory does not grow with the number of sites, and the result does not depend on the order in which sites
answer: n_c x is exact in float64 (n_c is a whole number of samples, x a float32), and sums are kept as an
unevaluated pair of float64 whose rounding errors are carried along (Knuth's TwoSum). The pair holds the sum exactly
unless the values of one weight at different sites are more than about twelve orders of magnitude apart.
"""

from collections.abc import Mapping

import numpy as np

from fclseg.errors import FCLSegError, PublicError
from fclseg.federation.states import Arrays, check_state

MOST_SAMPLES = 10**8
"""More slices than any hospital has. With ``states.MOST_COUNTED`` it keeps weighted sums of counters within int64."""


class WeightedMean:
    """``add`` what each site sent, then take the ``result``.

    ``like`` defines names, shapes and dtypes of a contribution; by default the first one does. Integer
    counters (BatchNorm's ``num_batches_tracked``) become the weighted mean rounded to the nearest whole number.
    """

    def __init__(self, component: str, like: Mapping[str, np.ndarray] | None = None):
        self.component = component
        self.total_weight = 0
        self._like: Mapping[str, np.ndarray] = like or {}
        self._sums: Arrays = {}
        self._errors: Arrays = {}

    def add(self, state: Mapping[str, np.ndarray], weight: int, site: str = "") -> None:
        """Add one site's component with its number of samples; a refused one leaves the mean unchanged."""
        check_samples(weight, site)
        if not self._like:
            self._like = {name: np.empty_like(array) for name, array in state.items()}
        check_state(state, self._like, site, self.component)
        # All sums first, and only then in their place: whatever fails on the way, the mean stays as it was.
        added = {name: self._added(name, state[name], weight) for name in self._like}
        self._sums = {name: total for name, (total, _) in added.items()}
        self._errors = {name: error for name, (_, error) in added.items()}
        self.total_weight += weight

    def result(self) -> Arrays:
        """The mean in the dtype of the contributions, rounded once."""
        if not self.total_weight:
            raise FCLSegError(f"no site sent component '{self.component}': there is nothing to average")
        return {name: self._mean(name) for name in self._like}

    def _added(self, name: str, array: np.ndarray, weight: int) -> tuple[np.ndarray, np.ndarray]:
        """A tensor's sum and its rounding error with one more contribution."""
        if np.issubdtype(array.dtype, np.integer):
            count = array.astype(np.int64) * weight
            return (self._sums[name] + count if name in self._sums else count), np.zeros(())
        term = array.astype(np.float64) * weight
        if name not in self._sums:
            return term, np.zeros_like(term)
        total, error = two_sum(self._sums[name], term)
        return total, self._errors[name] + error

    def _mean(self, name: str) -> np.ndarray:
        kind, total = self._like[name].dtype, self.total_weight
        if np.issubdtype(kind, np.integer):
            return np.asarray((2 * self._sums[name] + total) // (2 * total)).astype(kind)
        return np.asarray((self._sums[name] + self._errors[name]) / total).astype(kind)


def check_samples(count: object, site: str = "") -> int:
    """A site's number of samples n_c, refused when it is not a whole number of a plausible size."""
    if type(count) is not int or not 1 <= count <= MOST_SAMPLES:
        raise PublicError(f"{site or 'a site'}: {count!r:.40} is no number of samples: it must be 1, 2, 3 ...")
    return count


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(s, e) with s = a + b as rounded and e the rounding error, so that s + e = a + b exactly (Knuth)."""
    s = a + b
    b_rounded = s - a
    return s, (a - (s - b_rounded)) + (b - b_rounded)
