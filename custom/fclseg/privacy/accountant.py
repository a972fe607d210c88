"""(epsilon, delta) of everything that left with Gaussian noise, from Google's dp-accounting (extra ``privacy``)."""

from collections import Counter
from collections.abc import Iterable

from fclseg.errors import PublicError

UPDATE_SENSITIVITY = 2.0
"""Sensitivity of an update of norm ``clip``, in units of ``clip``, if a patient's images are replaced."""


def epsilon(multipliers: Iterable[float], delta: float) -> float:
    """Epsilon of a sequence of Gaussian mechanisms with these noise multipliers (standard deviation over sensitivity).

    Computed with Renyi differential privacy: an upper bound, about a tenth above the exact value.
    """
    counted = Counter(multipliers)
    if not counted:
        return 0.0
    try:
        from dp_accounting import GaussianDpEvent
        from dp_accounting.rdp import RdpAccountant
    except ImportError:
        raise PublicError(
            "the accountant of the privacy budget is not installed at this site: pip install 'fclseg[privacy]'"
        ) from None
    accountant = RdpAccountant()
    for multiplier, count in sorted(counted.items()):
        accountant.compose(GaussianDpEvent(multiplier), count)
    return float(accountant.get_epsilon(delta))
