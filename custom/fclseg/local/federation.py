"""All sites of a federation in one process, one after the other: Algorithm 1 without NVFlare.

The same components are exchanged, averaged and predicted as in a run with NVFlare, from the same exchange plan. Both
therefore end with the same encoder, bit for bit. Every site takes part in every round, so an update that the server
would refuse ends the run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch.optim import Optimizer

from fclseg.data.sampler import SliceSampler
from fclseg.errors import FCLSegError
from fclseg.federation.averaging import WeightedMean
from fclseg.federation.distance import DistancePredictor, distance
from fclseg.federation.exchange import ALWAYS, DISTANCE, MEAN, NEVER, OTHERS, Flow, Row, crosses
from fclseg.federation.ptnu import predict_target
from fclseg.federation.robust import Protection, capped, find_outliers
from fclseg.federation.states import Arrays, to_arrays, to_tensors
from fclseg.methods.base import Method
from fclseg.methods.training import RoundResult, cosine_lr, make_optimizer, train_round
from fclseg.privacy.protect import Upload, protect
from fclseg.privacy.settings import NO_PROTECTION, PrivacySettings

PROTECTION = Protection()
"""The server's default protection against single bad sites."""


@dataclass
class LocalSite:
    """What a site keeps between rounds."""

    name: str
    method: Method
    sampler: SliceSampler
    optimizer: Optimizer

    @classmethod
    def start(cls, name: str, method: Method, sampler: SliceSampler) -> "LocalSite":
        return cls(name, method, sampler, make_optimizer(method))


class LocalFederation:
    """The server side: global components, and the sites that train on them."""

    def __init__(self, row: Row, sites: list[LocalSite], seed: int, privacy: PrivacySettings = NO_PROTECTION):
        """All sites start with the same weights, so the weights of the first site are the global ones."""
        self.row, self.sites, self.seed, self.privacy = row, sites, seed, privacy
        self.settings, first = sites[0].method.preset.pretraining, sites[0].method
        self.means: dict[str, Arrays] = {
            flow.component: to_arrays(first.send(flow.component)) for flow in self._flows(MEAN) if flow.up != NEVER
        }
        self.others: dict[str, dict[str, Arrays]] = {flow.component: {} for flow in self._flows(OTHERS)}
        self.fresh = set(self.means)  # averaged in the last round
        self.predictor = DistancePredictor()
        self.losses: list[float] = []  # of each round, the mean over the sites

    def run(self) -> Iterator[float]:
        """All rounds; yields the loss of each."""
        for number in range(self.settings.rounds):
            self.round(number)
            yield self.losses[-1]

    def round(self, number: int) -> dict[str, RoundResult]:
        """One round of Algorithm 1; returns what each site reports."""
        up = [flow for flow in self.row.flows if crosses(flow.up, number, self.settings.calibration_rounds)]
        means = {f.component: WeightedMean(f.component) for f in up if f.combine == MEAN and f.component != DISTANCE}
        others: dict[str, dict[str, Arrays]] = {flow.component: {} for flow in up if flow.combine == OTHERS}
        target_distance = self._target_distance(first=number == 0)
        results: dict[str, RoundResult] = {}
        uploads: dict[str, Upload] = {}
        for member in self.sites:
            received = self._receive(member, target_distance)
            results[member.name] = self._train(member, number)
            networks, features = (
                {name: to_arrays(member.method.send(name)) for name in names} for names in (means, others)
            )
            uploads[member.name] = protect(member, Upload(networks, features), received, self.privacy)
        self._check_outliers(number, uploads, list(means))
        weights = capped({name: result.samples for name, result in results.items()}, PROTECTION.weight_cap)
        for site, upload in uploads.items():
            for name, mean in means.items():
                mean.add(upload.components[name], weights[site], site)
            for name, states in others.items():
                states[site] = upload.features[name]
        self.losses.append(sum(results[name].loss * n for name, n in weights.items()) / sum(weights.values()))
        self.means |= {name: mean.result() for name, mean in means.items()}
        self.others |= others
        self.fresh = set(means)
        return results

    def _check_outliers(self, number: int, uploads: Mapping[str, Upload], averaged: list[str]) -> None:
        for component in averaged:
            sent = {site: upload.components[component] for site, upload in uploads.items()}
            for site, outlier in find_outliers(sent, self.means[component], PROTECTION.factor).items():
                raise FCLSegError(f"round {number}: {outlier.sentence(site, component)}")

    def _flows(self, combine: str) -> list[Flow]:
        return [flow for flow in self.row.flows if flow.combine == combine and flow.component != DISTANCE]

    def _target_distance(self, first: bool) -> float | None:
        """d(F_theta, F_xi) for PTNU: exact, or predicted from the sites' own distances (DP)."""
        if not self.row.predicts_target:
            return None
        known = {"online", "target"} <= self.fresh
        exact = distance(self.means["online"], self.means["target"]) if known else None
        if not self.row.predicts_distance:
            return exact
        if exact is not None:
            self.predictor.calibrate(exact)
        distances = {s.name: distance(self.means["online"], to_arrays(s.method.send("target"))) for s in self.sites}
        return self.predictor.predict(distances, None if first else list(distances))

    def _receive(self, site: LocalSite, target_distance: float | None) -> dict[str, Arrays]:
        """Give a site the components that come down, and its predicted target network. Returns what came down."""
        down = {flow.component for flow in self._flows(MEAN) if flow.down == ALWAYS}
        received = {name: self.means[name] for name in self.means if name in down}
        arrays = dict(received)
        if target_distance is not None:
            own = to_arrays(site.method.send("target"))
            arrays["target"] = predict_target(arrays["online"], own, target_distance, self.settings.ptnu_momentum)
        site.method.receive(_tensors(arrays))
        for name, states in self.others.items():
            if theirs := {other: to_tensors(state) for other, state in states.items() if other != site.name}:
                site.method.receive_others(name, theirs)
        return received

    def _train(self, site: LocalSite, number: int) -> RoundResult:
        return train_round(
            site.method,
            site.sampler,
            site.optimizer,
            lr=cosine_lr(site.method.learning_rate, number, self.settings.rounds),
            epochs=self.settings.local_epochs,
            seed=self.seed,
            site=site.name,
            round_number=number,
        )

    def finish(self) -> dict[str, Method]:
        """The trained methods: under "" the one with the global encoder, or one per site if each keeps its own."""
        if not self.row.shares_online:
            return {site.name: site.method for site in self.sites}
        method = self.sites[0].method
        method.receive(_tensors({"online": self.means["online"]}))
        return {"": method}


def _tensors(components: Mapping[str, Arrays]) -> dict[str, dict]:
    return {name: to_tensors(arrays) for name, arrays in components.items()}
