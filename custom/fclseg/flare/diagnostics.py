"""Measuring what PTNU and DP predict. Off by default: a run that measures sends more, but trains exactly the same.

With ``diagnostics`` each site also sends its target network three times: as it was before the round (``own``), as it
was received or predicted (``given``), and as the round left it (``trained``). The server averages the last, which is
the true global target of the next round, and compares.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fclseg.federation.averaging import WeightedMean
from fclseg.federation.distance import distance
from fclseg.federation.states import Arrays, parameter_names, to_arrays
from fclseg.flare.messages import Message
from fclseg.flare.site import Site

PREFIX = "diagnostic."


def before(site: Site, message: Message) -> dict[str, Arrays]:
    """What the site had and what it was given, to be sent with the round's result."""
    if not site.settings.diagnostics:
        return {}
    own = {PREFIX + "own": to_arrays(site.method.send("target"))}
    given = message.components.get("target")
    return own if given is None else own | {PREFIX + "given": given}


def after(site: Site) -> dict[str, Arrays]:
    return {PREFIX + "trained": to_arrays(site.method.send("target"))} if site.settings.diagnostics else {}


def take(message: Message) -> dict[str, Arrays]:
    """Take the diagnostic components out of a result."""
    return {name: message.components.pop(name) for name in list(message.components) if name.startswith(PREFIX)}


class Diagnostics:
    """The server's side: keeps the true global target of the coming round."""

    def __init__(self) -> None:
        self.truth: Arrays | None = None
        self._next = WeightedMean("target")
        self._errors: dict[str, dict[str, float]] = {}

    def accept(self, site: str, found: dict[str, Arrays], samples: int, online: Mapping[str, np.ndarray]) -> None:
        """Compare what ``take`` found in a result with the truth of this round."""
        if trained := found.get(PREFIX + "trained"):
            self._next.add(trained, samples, site)
        if self.truth is None:
            return
        scale = _norm(online, self.truth)
        errors = {name.removeprefix(PREFIX): _norm(state, self.truth) for name, state in found.items()}
        errors.pop("trained", None)
        if scale > 0:
            self._errors[site] = {name: error / scale for name, error in errors.items()}

    def finish(self, online: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The record of the round; ``online`` is the global network that the round began with."""
        record: dict[str, Any] = {"target_errors": self._errors}
        if self.truth is not None:
            record["d"] = distance(online, self.truth)
        if self._next.total_weight:
            self.truth = self._next.result()
        self._next, self._errors = WeightedMean("target"), {}
        return record


def _norm(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> float:
    """Euclidean norm of the difference of two networks' parameters."""
    return math.sqrt(sum(float(((a[name].astype(np.float64) - b[name]) ** 2).sum()) for name in parameter_names(b)))
