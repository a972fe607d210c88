"""Checks features of other sites: they must be unit vectors, each with a partition number."""

from collections.abc import Mapping

import numpy as np

from fclseg.errors import PublicError

SHORTEST, LONGEST = 0.1, 10.0
"""Bounds on the norm of a feature. It is 1 when it leaves a site, but noise or rounding may change it on the way."""


def as_many_rows(like: Mapping[str, np.ndarray], state: Mapping[str, object]) -> dict[str, np.ndarray]:
    """The expected shapes of a bank with fewer features than the method's (at least one), such as prototypes."""
    given = state.get("features")
    rows = len(given) if isinstance(given, np.ndarray) and given.ndim else 0
    return {name: array[:rows] if 0 < rows < len(array) else array for name, array in like.items()}


def check_features(state: Mapping[str, np.ndarray], partitions: int, site: str, component: str) -> None:
    """Refuse features that are not unit vectors, and unknown partitions: they would affect all other sites."""
    where = f"{site}: component '{component}'"
    lengths = np.linalg.norm(state["features"].astype(np.float64), axis=1)
    if lengths.size and (lengths.min() < SHORTEST or lengths.max() > LONGEST):
        raise PublicError(f"{where} has features that are not unit vectors: its result is not used")
    if state["partitions"].size and state["partitions"].max() >= partitions:
        raise PublicError(f"{where} has partition numbers beyond the {partitions} partitions: its result is not used")
