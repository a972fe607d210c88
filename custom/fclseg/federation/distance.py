"""The l1 distance between networks (Eq. distance_exact) and its prediction from scalars (DP: distance prediction).

The distance is the *mean* absolute difference over the target's parameters. BatchNorm's running statistics are not
parameters and are left out: they are 0.4 % of the values but would be a quarter of the distance.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from fclseg.errors import FCLSegError, PublicError
from fclseg.federation.robust import lower_median
from fclseg.federation.states import parameter_names

FAR_BEYOND = 10.0
"""A distance of more than this many times the median is an outlier that no honest site measures."""


def distance(theta: Mapping[str, np.ndarray], xi: Mapping[str, np.ndarray]) -> float:
    """d(theta, xi) = 1/N sum |a - b| over the parameters of the online and the target network, summed in float64."""
    if different := sorted(set(theta) ^ set(xi)):
        raise FCLSegError(f"online and target network differ in tensor '{different[0]}': use the same preset for both")
    total, count = 0.0, 0
    for name in parameter_names(xi):
        if theta[name].shape != xi[name].shape:
            raise FCLSegError(
                f"online and target network differ in the shape of '{name}': use the same preset for both"
            )
        total += float(np.abs(theta[name].astype(np.float64) - xi[name]).sum())
        count += xi[name].size
    return total / count if count else 0.0


@dataclass
class DistancePredictor:
    """DP on the server: d~ = alpha DP, with DP the mean of the sites' distances (Eq. dist_pred_raw, dist_pred_scaled).

    ``alpha`` starts at 1. When targets were uploaded, ``calibrate`` takes the exact distance d between the new global
    networks. In the *next* ``predict`` the sites measure DP against that same global online network, which gives
    alpha = d / DP. In that round d~ is therefore exact.
    """

    alpha: float = 1.0
    exact: float | None = None  # d of the last calibration, until the matching DP is known
    last: float | None = None  # the previous round's d~

    def calibrate(self, exact: float) -> None:
        """Store the exact d of a calibration round."""
        self.exact = check_distance(exact, "the server")

    def predict(self, distances: Mapping[str, float], trained: Collection[str] | None = None) -> float:
        """d~ from the sites' dp_c.

        ``trained`` lists the sites that took part in the last round. With client sampling, other sites answer too, but
        their targets lag behind and would push d~ up, so DP is averaged over the sites that trained. If none of them
        answered, DP says nothing about the current d and must not calibrate alpha. Then d~ is the exact d if it is
        known. Otherwise d~ keeps its value, because d changes little between rounds.
        """
        if not distances:
            raise FCLSegError("no site answered with its distance: the distance cannot be predicted in this round")
        values = {site: check_distance(value, site) for site, value in distances.items()}
        recent = {site: value for site, value in values.items() if site in (trained or ())}
        known = self.exact if self.exact is not None else self.last
        if trained and not recent and known is not None:
            self.exact, self.last = None, known
            return known
        counted = plausible(recent or values)
        mean = math.fsum(counted) / len(counted)  # an exact sum, so that the order of answers does not matter
        if self.exact is not None and mean > 0:
            self.alpha = self.exact / mean
        self.exact, self.last = None, self.alpha * mean
        return self.last

    def state(self) -> dict[str, float | int | None]:
        """The state for a checkpoint. ``DistancePredictor(**state)`` restores it."""
        return asdict(self)


def plausible(distances: Mapping[str, float]) -> list[float]:
    """The distances without outliers far above the median, which would distort the mean and therefore alpha."""
    most = FAR_BEYOND * lower_median(list(distances.values()))
    return [value for value in distances.values() if value <= most]


def check_distance(value: float, site: str) -> float:
    """The value as a float. Raises if it is not a distance: not finite, or negative."""
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise PublicError(
            f"{site}: {value!r:.40} is not a distance between networks: its weights are damaged or have diverged"
        )
    return float(value)
