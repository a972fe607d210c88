"""Measures how well PTNU and DP predict. Off by default: it adds traffic, but does not change the training.

With ``diagnostics`` each site also sends its target network three times: before the round (``own``), as received or
predicted (``given``), and after training (``trained``). The server averages the trained ones, which gives the true
global target of the next round, and compares the predictions with it.
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
    """The target that the site had and the one it was given, to be sent with the result of the round."""
    if not site.settings.diagnostics:
        return {}
    own = {PREFIX + "own": to_arrays(site.method.send("target"))}
    given = message.components.get("target")
    return own if given is None else own | {PREFIX + "given": given}


def after(site: Site) -> dict[str, Arrays]:
    return {PREFIX + "trained": to_arrays(site.method.send("target"))} if site.settings.diagnostics else {}


def take(message: Message) -> dict[str, Arrays]:
    """Remove the diagnostic components from a result and return them."""
    return {name: message.components.pop(name) for name in list(message.components) if name.startswith(PREFIX)}


class Diagnostics:
    """The server side: keeps the true global target of the next round."""

    def __init__(self) -> None:
        self.truth: Arrays | None = None
        self._next = WeightedMean("target")
        self._errors: dict[str, dict[str, float]] = {}

    def accept(self, site: str, found: dict[str, Arrays], samples: int, online: Mapping[str, np.ndarray]) -> None:
        """Compare what ``take`` found in a result with the true target of this round."""
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
        """The record of the round; ``online`` is the global network at the start of the round."""
        record: dict[str, Any] = {"target_errors": self._errors}
        if self.truth is not None:
            record["d"] = distance(online, self.truth)
        if self._next.total_weight:
            self.truth = self._next.result()
        self._next, self._errors = WeightedMean("target"), {}
        return record


def _norm(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> float:
    """Euclidean norm of the difference between the parameters of two networks."""
    return math.sqrt(sum(float(((a[name].astype(np.float64) - b[name]) ** 2).sum()) for name in parameter_names(b)))
