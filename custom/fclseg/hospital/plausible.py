"""Networks that a server could only have sent to learn something: a site does not answer them.

A weight of a thousand in one place turns the answer to a distance task into a measurement of one weight of the site's
target network. A layer whose rows all measure the same sorts the images of a step into bins, and the update then shows
the features of single ones (``fclseg.attacks.trap``). Trained and initial networks of this package have neither.
"""

from collections.abc import Mapping

import numpy as np

from fclseg.federation.states import Arrays
from fclseg.hospital.policy import PolicyError

MOST_WEIGHT = 100.0
STATISTICS = ("running_mean", "running_var", "num_batches_tracked", "features", "partitions")
"""Of BatchNorm and of banks: not weights."""
FEWEST_ROWS, PARALLEL, MOST_PARALLEL = 8, 0.999, 0.5
"""In layers of at least so many rows, the share of rows that may be parallel to another one."""
START_TOLERANCE = 0.25
"""How far the first round's networks may be from those that the site derives itself; a codec changes them a little."""


def check_plausible(networks: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    for arrays in networks.values():
        for name, array in arrays.items():
            if name.endswith(STATISTICS) or not array.size:
                continue
            if not np.abs(array).max() <= MOST_WEIGHT or parallel_rows(array) > MOST_PARALLEL:
                raise PolicyError(
                    "the server sent a network with implausible weights, and this site does not answer it"
                )


def parallel_rows(array: np.ndarray) -> float:
    """The share of a layer's rows (filters) that point where another one points, or the opposite way."""
    rows = array.reshape(len(array), -1) if array.ndim > 1 else np.zeros((0, 1))
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows[lengths > 0] / lengths[lengths > 0, None]
    if len(rows) < FEWEST_ROWS or rows.shape[1] < 2:
        return 0.0
    cosines = np.abs(rows @ rows.T)
    np.fill_diagonal(cosines, 0.0)
    return float((cosines.max(axis=1) > PARALLEL).mean())


def check_start(received: Mapping[str, Arrays], own: Mapping[str, Arrays]) -> None:
    """Before the first round nobody has trained: the networks are those that the site derives itself."""
    for component, arrays in own.items():
        for name, array in arrays.items():
            if component not in received or name.endswith(STATISTICS):
                continue
            allowed = START_TOLERANCE * np.linalg.norm(array) + 1e-3 * array.size**0.5
            if not np.linalg.norm(received[component][name] - array) <= allowed:
                raise PolicyError(
                    "the networks of the first round are not those that this run starts with, and this site does not "
                    "answer them"
                )
