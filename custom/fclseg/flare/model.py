"""The global model on the server, and the aggregator that makes the next one as results arrive."""

from dataclasses import dataclass, field
from typing import Any

from fclseg.errors import FCLSegError
from fclseg.federation.averaging import WeightedMean
from fclseg.federation.distance import DistancePredictor
from fclseg.federation.exchange import ALWAYS, DISTANCE, MEAN, NEVER, OTHERS, Flow, Row, crosses
from fclseg.federation.states import Arrays, to_arrays, to_tensors
from fclseg.flare.messages import Message, check_message
from fclseg.flare.tensors import State
from fclseg.methods.base import Method


@dataclass
class GlobalModel:
    """What the server knows between two rounds; a checkpoint is exactly this."""

    row: Row
    means: dict[str, Arrays]  # averaged components
    others: dict[str, dict[str, Arrays]]  # components that are passed on, by site
    next_round: int = 0
    fresh: set[str] = field(default_factory=set)  # averaged components that the last round brought
    trained: list[str] = field(default_factory=list)  # sites that took part in the last round
    predictor: DistancePredictor = field(default_factory=DistancePredictor)

    @classmethod
    def initial(cls, row: Row, method: Method) -> "GlobalModel":
        means = {flow.component: to_arrays(method.send(flow.component)) for flow in _flows(row, MEAN)}
        return cls(row, means, {flow.component: {} for flow in _flows(row, OTHERS)}, fresh=set(means))

    def downloads(self) -> dict[str, Arrays]:
        """The averaged components that come down. With PTNU the target is among them, for the filter to replace."""
        down = {flow.component for flow in self.row.flows if flow.down == ALWAYS}
        if self.row.predicts_target and not self.row.predicts_distance:
            down.add("target")
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
        return parts, info | {"predictor": self.predictor.state()}

    @classmethod
    def from_states(cls, row: Row, parts: dict[str, State], info: dict[str, Any]) -> "GlobalModel":
        model = cls(row, {}, {flow.component: {} for flow in _flows(row, OTHERS)})
        for key, state in parts.items():
            kind, name, *site = key.split(":", 2)
            if kind == "mean":
                model.means[name] = to_arrays(state)
            else:
                model.others[name][site[0]] = to_arrays(state)
        model.next_round, model.fresh, model.trained = info["next_round"], set(info["fresh"]), info["trained"]
        model.predictor = DistancePredictor(**info["predictor"])
        return model


class Aggregator:
    """Takes the results of one round as they arrive; a refused result leaves no trace."""

    def __init__(self, row: Row, round_number: int, calibration_rounds: int, like: dict[str, Arrays]):
        flows = [flow for flow in row.flows if flow.component != DISTANCE]
        self._flows = [flow for flow in flows if crosses(flow.up, round_number, calibration_rounds)]
        self._like, self._round = like, round_number
        self._means = {
            f.component: WeightedMean(f.component, like[f.component]) for f in self._flows if f.combine == MEAN
        }
        self._others = {f.component: {} for f in self._flows if f.combine == OTHERS}
        self.sites: list[str] = []

    def accept(self, site: str, message: Message) -> None:
        if message.round_number != self._round:
            raise FCLSegError(f"{site}: the result belongs to round {message.round_number}, not to {self._round}")
        check_message(message, self._like, site)
        passed_on = {name: states[site] for name, states in message.others.items() if site in states}
        expected = {flow.component for flow in self._flows}
        if different := sorted(expected ^ {*message.components, *passed_on}):
            fault = "lacks" if different[0] in expected else "brings unexpected"
            raise FCLSegError(f"{site}: the result {fault} component '{different[0]}': run the same job everywhere")
        for name, mean in self._means.items():
            mean.add(message.components[name], message.meta["samples"], site)
        for name, states in self._others.items():
            states[site] = passed_on[name]
        self.sites.append(site)

    def finish(self, model: GlobalModel) -> None:
        """Turn the accepted results into the next global model."""
        results = {name: mean.result() for name, mean in self._means.items()}
        model.means |= results
        model.fresh = set(results)
        for name, states in self._others.items():
            model.others[name] |= states  # of a site that was not asked or did not answer, its last one stays
        model.trained = sorted(self.sites)
        model.next_round = self._round + 1


def _flows(row: Row, combine: str) -> list[Flow]:
    """The flows of one kind that go up at some time; what never goes up the server does not know."""
    return [f for f in row.flows if f.combine == combine and f.component != DISTANCE and f.up != NEVER]
