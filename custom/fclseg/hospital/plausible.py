"""Networks that a server could only have sent to learn something: a site does not answer them.

A weight of a thousand in one place turns the answer to a distance task into a measurement of one weight of the site's
target network. Trained and initial networks of this package stay far below the bound.
"""

from collections.abc import Mapping

import numpy as np

from fclseg.hospital.policy import PolicyError

MOST_WEIGHT = 100.0
STATISTICS = ("running_mean", "running_var", "num_batches_tracked", "features", "partitions")
"""Of BatchNorm and of banks: not weights."""


def check_plausible(networks: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    for arrays in networks.values():
        for name, array in arrays.items():
            if not name.endswith(STATISTICS) and array.size and not np.abs(array).max() <= MOST_WEIGHT:
                raise PolicyError(
                    "the server sent a network with implausible weights, and this site does not answer it"
                )
