"""What features of another site look like: unit vectors with the number of a partition."""

from collections.abc import Mapping

import numpy as np

from fclseg.errors import PublicError

SHORTEST, LONGEST = 0.1, 10.0
"""Bounds on the length of a feature. It is 1 when it leaves a site, but noise or rounding may change it on the way."""


def as_many_rows(like: Mapping[str, np.ndarray], state: Mapping[str, object]) -> dict[str, np.ndarray]:
    """What a bank looks like that has fewer features than the method's, such as prototypes; at least one."""
    given = state.get("features")
    rows = len(given) if isinstance(given, np.ndarray) and given.ndim else 0
    return {name: array[:rows] if 0 < rows < len(array) else array for name, array in like.items()}


def check_features(state: Mapping[str, np.ndarray], partitions: int, site: str, component: str) -> None:
    """Refuse features without a direction and partitions that there are not: they would steer every other site."""
    where = f"{site}: component '{component}'"
    lengths = np.linalg.norm(state["features"].astype(np.float64), axis=1)
    if lengths.size and (lengths.min() < SHORTEST or lengths.max() > LONGEST):
        raise PublicError(f"{where} has features that are no unit vectors: its result is not used")
    if state["partitions"].size and state["partitions"].max() >= partitions:
        raise PublicError(f"{where} names partitions beyond the {partitions} there are: its result is not used")
