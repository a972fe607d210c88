"""PTNU, the predictive target network update (Algorithm 2), in closed form.

The paper moves the site's target towards the global online network, xi <- m_d xi + (1 - m_d) theta, until their
distance is at most d. Each step shrinks xi - theta by exactly m_d, so the number of steps is known in advance, and all
steps become one multiplication. This also works for d = 0, where the loop would never end.
"""

import math
from collections.abc import Mapping

import numpy as np

from fclseg.errors import FCLSegError
from fclseg.federation.distance import check_distance, distance
from fclseg.federation.states import Arrays


def steps_needed(d: float, d0: float, momentum: float) -> int:
    """k = ceil(log(d / d0) / log(m_d)), the number of loop steps from distance d0 > 0 to at most d > 0."""
    if d >= d0:
        return 0
    # Without the small tolerance, rounding would add a step if d is exactly one of the loop's distances.
    return math.ceil((math.log(d) - math.log(d0)) / math.log(momentum) - 1e-9)


def predict_target(
    theta: Mapping[str, np.ndarray], xi: Mapping[str, np.ndarray], d: float, momentum: float = 0.995
) -> Arrays:
    """The global target network predicted at a site: Algorithm 2 for theta, the site's own xi, and d.

    BatchNorm's running statistics move by the same factor although they are not part of the distance; its counters are
    taken from theta.
    """
    if not 0.0 < momentum < 1.0:
        raise FCLSegError(f"the PTNU momentum m_d is {momentum}: it must be between 0 and 1")
    d, d0 = check_distance(d, "the server"), distance(theta, xi)
    check_distance(d0, "this site")
    if d == 0.0:
        return {name: array.copy() for name, array in theta.items()}
    steps = steps_needed(d, d0, momentum)
    return {name: _approach(theta[name], array, steps, momentum) for name, array in xi.items()}


def _approach(theta: np.ndarray, xi: np.ndarray, steps: int, momentum: float) -> np.ndarray:
    """theta + m_d^k (xi - theta); integer counters are copied from theta."""
    if np.issubdtype(xi.dtype, np.integer):
        return theta.copy()
    if steps == 0:
        return xi.copy()
    return np.asarray(theta + np.asarray(momentum**steps, dtype=xi.dtype) * (xi - theta))
