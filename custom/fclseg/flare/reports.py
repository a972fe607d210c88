"""A site's report on its round: five numbers. A wrong type or a value out of bounds makes the result invalid."""

import math
from collections.abc import Mapping
from typing import Any

from fclseg.errors import PublicError
from fclseg.federation.averaging import MOST_SAMPLES

MOST_SECONDS = 10**7
MOST_LOSS = 10**6

BOUNDS: dict[str, tuple[type, float, float]] = {
    "samples": (int, 1, MOST_SAMPLES),
    "steps": (int, 0, MOST_SAMPLES),
    "loss": (float, -MOST_LOSS, MOST_LOSS),
    "feature_std": (float, 0, MOST_LOSS),
    "seconds": (float, 0, MOST_SECONDS),
}
"""Type, minimum and maximum of each number."""


def read_report(meta: Mapping[str, Any], site: str) -> dict[str, Any]:
    """The report in a result's metadata. Nothing else in the metadata is kept."""
    report = {}
    for name, (kind, least, most) in BOUNDS.items():
        value = meta.get(name)
        fits = type(value) is int or (kind is float and type(value) is float and math.isfinite(value))
        if not fits or not least <= value <= most:  # type: ignore[operator]
            raise PublicError(f"{site}: '{name}' cannot be {value!r:.40}: the result is not used")
        report[name] = value
    return report
