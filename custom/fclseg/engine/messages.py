"""The contents of a task or of its result, as plain data. A transport carries them (``fclseg.flare.wire`` for NVFlare).

A message states the run and the round that it belongs to. Nothing in it is trusted before it has been checked.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fclseg.errors import PublicError
from fclseg.federation.averaging import MOST_SAMPLES
from fclseg.federation.features import as_many_rows
from fclseg.federation.states import SCALAR_BYTES, Arrays, array_bytes, check_state
from fclseg.methods.exchange import DISTANCE

FORMAT = 2
"""Number of the form of messages and state files. It is raised when either changes its meaning: parties with different
numbers refuse each other, and a run folder or a site's memory of another number is not continued."""
DISTANCE_TASK, PRETRAIN_TASK, SUM_TASK = "distance", "pretrain", "sum"
NEEDS_WHOLE = "the whole networks are sent next time"
"""Part of the error of a site that could not decode what it was sent."""


@dataclass
class Message:
    """Averaged components by name, passed-on components by name and site, the distance, and metadata."""

    components: dict[str, Arrays] = field(default_factory=dict)
    others: dict[str, dict[str, Arrays]] = field(default_factory=dict)
    distance: float | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    encoded: dict[str, Arrays] = field(default_factory=dict)  # components as bytes, see fclseg.federation.downlink

    @property
    def round_number(self) -> int:
        return self.meta["round"]

    def payload(self) -> dict[str, int]:
        """All bytes by component, integers included."""
        sizes = {name: array_bytes(arrays) for name, arrays in self.components.items()}
        for name, states in self.others.items():
            sizes[name] = sum(array_bytes(arrays) for arrays in states.values())
        for name, messages in self.encoded.items():
            sizes[name] = sizes.get(name, 0) + array_bytes(messages)
        if self.distance is not None:
            sizes[DISTANCE] = SCALAR_BYTES
        return sizes


def check_message(message: Message, like: Mapping[str, Arrays], sender: str) -> None:
    """Refuse unknown components, wrong shapes and values that are not finite. The error names the sender."""
    parts = [(name, arrays) for name, arrays in message.components.items()]
    features = [(name, arrays) for name, states in message.others.items() for arrays in states.values()]
    for name, _ in (*parts, *features):
        if name not in like:
            raise PublicError(f"{sender}: unknown component '{name}': run the same version and job at every site")
    for name, arrays in parts:
        check_state(arrays, like[name], sender, name)
    for name, arrays in features:
        check_state(arrays, as_many_rows(like[name], arrays), sender, name)


def check_format(found: object, whose: str) -> None:
    """Refuse another form of messages or files: the same names may mean something else there."""
    if found != FORMAT:
        raise PublicError(
            f"{whose} has format {found!s:.20}, but fclseg has format {FORMAT} here: install the same version"
        )


MOST_SECONDS = 10**7
MOST_LOSS = 10**6
REPORT: dict[str, tuple[type, float, float]] = {
    "samples": (int, 1, MOST_SAMPLES),
    "steps": (int, 0, MOST_SAMPLES),
    "loss": (float, -MOST_LOSS, MOST_LOSS),
    "feature_std": (float, 0, MOST_LOSS),
    "seconds": (float, 0, MOST_SECONDS),
}
"""A site's report on its round: type, minimum and maximum of each number."""


def read_report(meta: Mapping[str, Any], site: str) -> dict[str, Any]:
    """The report in a result's metadata. Nothing else in the metadata is kept."""
    report = {}
    for name, (kind, least, most) in REPORT.items():
        value = meta.get(name)
        fits = type(value) is int or (kind is float and type(value) is float and math.isfinite(value))
        if not fits or not least <= value <= most:  # type: ignore[operator]
            raise PublicError(f"{site}: '{name}' cannot be {value!r:.40}: the result is not used")
        report[name] = value
    return report
