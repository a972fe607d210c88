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
"""How many times the median distance no honest site measures."""


def distance(theta: Mapping[str, np.ndarray], xi: Mapping[str, np.ndarray]) -> float:
    """d(theta, xi) = 1/N sum |a - b| over the parameters of an online and a target network, summed in float64."""
    if different := sorted(set(theta) ^ set(xi)):
        raise FCLSegError(f"online and target network differ in tensor '{different[0]}': use one preset for both")
    total, count = 0.0, 0
    for name in parameter_names(xi):
        if theta[name].shape != xi[name].shape:
            raise FCLSegError(f"online and target network differ in the shape of '{name}': use one preset for both")
        total += float(np.abs(theta[name].astype(np.float64) - xi[name]).sum())
        count += xi[name].size
    return total / count if count else 0.0


@dataclass
class DistancePredictor:
    """DP on the server: d~ = alpha DP, with DP the mean of the sites' distances (Eq. dist_pred_raw, dist_pred_scaled).

    ``alpha`` starts at 1. When targets were uploaded, ``calibrate`` takes the exact distance between the new global
    networks, and the DP of the *next* ``predict``, which the sites measure against that same global online network,
    gives alpha = d / DP; in that round d~ is therefore exact.
    """

    alpha: float = 1.0
    exact: float | None = None  # d of the last calibration, until the matching DP is known
    last: float | None = None  # the previous round's d~

    def calibrate(self, exact: float) -> None:
        """Note the exact d of a calibration round."""
        self.exact = check_distance(exact, "the server")

    def predict(self, distances: Mapping[str, float], trained: Collection[str] | None = None) -> float:
        """d~ from the sites' dp_c.

        ``trained`` names the sites that took part in the last round. With client sampling others answer too, but their
        targets lag behind and would push d~ up, so DP is averaged over those that trained. If none of them answered, DP
        says nothing about the present and must not calibrate alpha either: d~ is then the exact d where it is known,
        or else stays where it was, since d moves little from round to round.
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
        mean = math.fsum(counted) / len(counted)  # exact sum, so the order of answers does not matter
        if self.exact is not None and mean > 0:
            self.alpha = self.exact / mean
        self.exact, self.last = None, self.alpha * mean
        return self.last

    def state(self) -> dict[str, float | None]:
        """What a checkpoint keeps; ``DistancePredictor(**state)`` restores it."""
        return asdict(self)


def plausible(distances: Mapping[str, float]) -> list[float]:
    """The distances without those far beyond the median one, which would spoil the mean and with it alpha."""
    most = FAR_BEYOND * lower_median(list(distances.values()))
    return [value for value in distances.values() if value <= most]


def check_distance(value: float, site: str) -> float:
    """The value as a float, refused when it is no distance: not finite, or negative."""
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise PublicError(f"{site}: {value!r:.40} is no distance between networks: its weights are damaged or diverged")
    return float(value)
