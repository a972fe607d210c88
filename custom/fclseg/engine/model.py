"""The global model on the server."""

from dataclasses import dataclass, field
from typing import Any

from fclseg.federation.distance import DistancePredictor
from fclseg.federation.downlink import Downlink
from fclseg.federation.states import Arrays, to_arrays, to_tensors
from fclseg.methods.base import Method
from fclseg.methods.exchange import ALWAYS, DISTANCE, MEAN, NEVER, OTHERS, Flow, Row
from fclseg.networks.loading import State
from fclseg.secure_sums.integers import Scales


@dataclass
class GlobalModel:
    """The server's state between rounds. A checkpoint is exactly this."""

    row: Row
    means: dict[str, Arrays]  # averaged components
    others: dict[str, dict[str, Arrays]]  # components that are passed on, by site
    next_round: int = 0
    fresh: set[str] = field(default_factory=set)  # averaged components that came up in the last round
    trained: list[str] = field(default_factory=list)  # sites that took part in the last round
    predictor: DistancePredictor = field(default_factory=DistancePredictor)
    downlink: Downlink | None = None  # where a codec is used
    scales: Scales | None = None  # of the next secure sum; None before the first one

    @classmethod
    def initial(cls, row: Row, method: Method) -> "GlobalModel":
        means = {flow.component: to_arrays(method.send(flow.component)) for flow in _flows(row, MEAN)}
        return cls(row, means, {flow.component: {} for flow in _flows(row, OTHERS)}, fresh=set(means))

    def downloads(self) -> dict[str, Arrays]:
        """The averaged components that come down."""
        down = {flow.component for flow in self.row.flows if flow.down == ALWAYS}
        return {name: arrays for name, arrays in self.means.items() if name in down}

    def from_others(self, site: str) -> dict[str, dict[str, Arrays]]:
        """What each of the other sites sent last, for the flows that are passed on."""
        found = {name: {s: a for s, a in states.items() if s != site} for name, states in self.others.items()}
        return {name: states for name, states in found.items() if states}

    def to_states(self) -> tuple[dict[str, State], dict[str, Any]]:
        """For a checkpoint file: tensors by part, and the rest."""
        parts = {f"mean:{name}": to_tensors(arrays) for name, arrays in self.means.items()}
        for name, states in self.others.items():
            parts |= {f"others:{name}:{site}": to_tensors(arrays) for site, arrays in states.items()}
        info = {"next_round": self.next_round, "fresh": sorted(self.fresh), "trained": self.trained}
        info["predictor"] = self.predictor.state()
        info["scales"] = self.scales and self.scales.to_dict()
        if self.downlink:
            coded, info["downlink"] = self.downlink.state()
            parts |= {f"downlink:{name}": to_tensors(arrays) for name, arrays in coded.items()}
        return parts, info

    @classmethod
    def from_states(
        cls, row: Row, parts: dict[str, State], info: dict[str, Any], downlink: Downlink | None = None
    ) -> "GlobalModel":
        """Load a checkpoint. ``downlink`` is given in its initial state and moved to that of the checkpoint."""
        model = cls(row, {}, {flow.component: {} for flow in _flows(row, OTHERS)}, downlink=downlink)
        coded: dict[str, Arrays] = {}
        for key, state in parts.items():
            kind, name, *rest = key.split(":", 2)
            if kind == "mean":
                model.means[name] = to_arrays(state)
            elif kind == "downlink":
                coded[f"{name}:{rest[0]}"] = to_arrays(state)
            else:
                model.others[name][rest[0]] = to_arrays(state)
        if downlink:
            downlink.restore(coded, info["downlink"])
        model.next_round, model.fresh, model.trained = info["next_round"], set(info["fresh"]), info["trained"]
        model.predictor = DistancePredictor(**info["predictor"])
        model.scales = Scales.read(info["scales"]) if info.get("scales") else None
        return model


def _flows(row: Row, combine: str) -> list[Flow]:
    """The flows of one kind that go up in some round. The server does not know components that never go up."""
    return [f for f in row.flows if f.combine == combine and f.component != DISTANCE and f.up != NEVER]
