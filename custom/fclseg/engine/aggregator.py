"""Computes the next global model from the results of a round, and rejects invalid results."""

from dataclasses import dataclass

from fclseg.engine.messages import Message, check_message
from fclseg.engine.model import GlobalModel
from fclseg.errors import PublicError
from fclseg.federation.averaging import WeightedMean, check_samples
from fclseg.federation.features import check_features
from fclseg.federation.robust import MEAN_RULE, OFF, Protection, capped, combine_by_coordinate, find_outliers
from fclseg.federation.spool import Spool
from fclseg.federation.states import Arrays
from fclseg.methods.exchange import DISTANCE, MEAN, OTHERS, crosses

DEFAULT = Protection()


@dataclass
class Contribution:
    """What one site sent for a round, after all checks."""

    components: dict[str, Arrays]
    passed_on: dict[str, Arrays]
    samples: int


class Aggregator:
    """Collects the results of one round as they arrive and keeps them until the round ends.

    A refused result leaves no trace. Outliers can only be found when all results have arrived.
    """

    def __init__(
        self,
        model: GlobalModel,
        calibration_rounds: int,
        like: dict[str, Arrays],
        partitions: int,
        protection: Protection = DEFAULT,
        spool: Spool | None = None,
    ):
        flows = [flow for flow in model.row.flows if flow.component != DISTANCE]
        self._flows = [flow for flow in flows if crosses(flow.up, model.next_round, calibration_rounds)]
        self._averaged = [flow.component for flow in self._flows if flow.combine == MEAN]
        self._model, self._like, self._partitions, self._protection = model, like, partitions, protection
        self._held: dict[str, Contribution] = {}
        self._spool = spool or Spool(None)

    @property
    def sites(self) -> list[str]:
        return list(self._held)

    @property
    def weights(self) -> dict[str, int]:
        """n_c of the accepted sites, capped so that no site dominates."""
        samples = {site: held.samples for site, held in self._held.items()}
        return capped(samples, self._protection.weight_cap) if samples else {}

    def accept(self, site: str, message: Message) -> None:
        """Keep a site's result if it passes all checks."""
        number = self._model.next_round
        if message.round_number != number:
            raise PublicError(f"{site}: the result belongs to round {message.round_number!r:.40}, not to {number}")
        if site in self._held:
            raise PublicError(f"{site}: this site has already sent a result for this round")
        check_message(message, self._like, site)
        if foreign := sorted({other for states in message.others.values() for other in states} - {site}):
            raise PublicError(f"{site}: the result contains data of another site, '{foreign[0]:.40}'")
        passed_on = {name: states[site] for name, states in message.others.items() if site in states}
        self._check_complete(site, {*message.components, *passed_on})
        for name, state in passed_on.items():
            check_features(state, self._partitions, site, name)
        samples = check_samples(message.meta.get("samples"), site)
        components = {name: self._spool.keep(arrays) for name, arrays in message.components.items()}
        self._held[site] = Contribution(components, passed_on, samples)

    def _check_complete(self, site: str, brought: set[str]) -> None:
        expected = {flow.component for flow in self._flows}
        if different := sorted(expected ^ brought):
            fault = "lacks" if different[0] in expected else "has an unexpected"
            raise PublicError(f"{site}: the result {fault} component '{different[0]}': run the same job everywhere")

    def settle(self) -> dict[str, str]:
        """Reject updates whose norm is far above the median. Returns {site: why it was rejected}."""
        if self._protection.outliers == OFF or not self._held:
            return {}
        refused: dict[str, str] = {}
        for name in self._averaged:
            before, factor = self._model.means[name], self._protection.factor
            sent = {site: held.components[name] for site, held in self._held.items()}
            for site, outlier in find_outliers(sent, before, factor).items():
                refused[site] = outlier.sentence(site, name)
        for site in refused:
            del self._held[site]
        return refused

    def finish(self) -> None:
        """Turn the accepted results into the next global model."""
        model, weights = self._model, self.weights
        results = {name: self._combined(name, weights) for name in self._averaged}
        model.means |= results
        model.fresh = set(results)
        for flow in self._flows:
            if flow.combine == OTHERS:  # a site that was not asked or did not answer keeps its last one
                model.others[flow.component] |= {s: held.passed_on[flow.component] for s, held in self._held.items()}
        model.trained = sorted(self._held)
        model.next_round += 1

    def _combined(self, name: str, weights: dict[str, int]) -> Arrays:
        if self._protection.rule != MEAN_RULE:
            states = [self._held[site].components[name] for site in sorted(self._held)]
            return combine_by_coordinate(states, self._protection.rule)
        mean = WeightedMean(name, self._like[name])
        for site, held in self._held.items():
            mean.add(held.components[name], weights[site], site)
        return mean.result()
