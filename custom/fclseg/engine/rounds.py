"""The rounds of a run, driven by the exchange plan: what is sent, what is expected, what is recorded."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from fclseg.anatomy.registry import ANATOMIES, get_anatomy
from fclseg.engine.aggregator import Aggregator
from fclseg.engine.attendance import Attendance, reasons
from fclseg.engine.coding import Coded, Coding, start_downlink
from fclseg.engine.messages import DISTANCE_TASK, FORMAT, PRETRAIN_TASK, Message, read_report
from fclseg.engine.meter import Meter
from fclseg.engine.model import GlobalModel
from fclseg.engine.run_folder import describe
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.sum_rounds import SumRound
from fclseg.engine.sums import Ask
from fclseg.errors import PassingError, PublicError
from fclseg.federation.distance import check_distance, distance
from fclseg.federation.robust import large_losses
from fclseg.federation.spool import Spool
from fclseg.federation.states import Arrays, to_arrays, to_tensors
from fclseg.methods.base import Method
from fclseg.methods.registry import build_method
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.loading import load_encoder
from fclseg.networks.start_share import average_with_start
from fclseg.secure_sums.identity import SimulatedTrust, Trust
from fclseg.text import one_line

AfterRound = Callable[[dict[str, Any]], None]
"""Gets the line of each round for ``rounds.jsonl``."""


class RunStore(Protocol):
    """Where a run keeps what it has done: ``RunFolder``, or ``UnsavedRun`` in this process."""

    path: Path
    config: dict[str, Any]

    @property
    def complete(self) -> bool: ...
    @property
    def encoders(self) -> dict[str, Path]: ...
    def load(self, initial: GlobalModel) -> GlobalModel: ...
    def save(self, model: GlobalModel, record: dict[str, Any]) -> None: ...
    def finish(self, encoder: Method | None, settings: RunSettings) -> None: ...


def _nothing(record: dict[str, Any]) -> None:
    """Nobody watches."""


class RunLoop:
    """Runs the remaining rounds. The caller, a transport, decides how tasks are sent (``Ask``)."""

    def __init__(
        self,
        settings: RunSettings,
        folder: RunStore,
        sites: list[str],
        meter: Meter,
        shared: Mapping[str, str | None] | None = None,
        encoder: EncoderFactory | None = None,
        trust: Trust | None = None,
    ):
        """``shared``: folders of a simulation, whose sites share one machine. ``encoder`` makes another encoder than
        the paper's; every site needs the same. ``trust``: whose signatures count in secure sums; None: a simulation."""
        self.settings, self.folder, self.meter, self.trust = settings, folder, meter, trust or SimulatedTrust()
        self.attendance = Attendance(sites, settings.fraction, settings.seed)
        self.run_info = {"id": folder.config["id"], "format": FORMAT, "settings": settings.to_dict()}
        self.run_info |= {"sites": sites, "shared": dict(shared or {})}
        self.preset = settings.build_preset()
        anatomy = get_anatomy(settings.anatomy)
        self.partitions = max(known.partitions for known in (anatomy, *ANATOMIES.values()))  # sites may have any images
        self.method = build_method(settings.row, self.preset, settings.seed, anatomy, encoder)
        if settings.encoder:
            load_encoder(self.method.online, settings.encoder)
            if self.method.has_target:
                self.method.receive({"target": self.method.send("online")})
        if network := settings.network_file:
            self.method.start_from(network)
        initial = GlobalModel.initial(settings.row, self.method)
        self.like = {**initial.means, **{name: to_arrays(self.method.send(name)) for name in initial.others}}
        codec, known = settings.run_codec, not (settings.encoder or settings.network)
        initial.downlink = start_downlink(settings.row, codec, initial.means, known)
        self.model = folder.load(initial)
        self.coding = Coding(self.model)
        if codec and self.model.downlink:
            self.coding = Coded(self.model, self.model.downlink, codec, self.like)

    def run(self, ask: Ask, log: Callable[[str], None], after_round: AfterRound = _nothing) -> None:
        rounds, first = self.preset.pretraining.rounds, self.model.next_round
        if self.folder.complete:
            log(f"run {self.folder.path} is complete ({rounds} rounds); FCLSEG_FRESH=1 starts it over")
            return
        if first:
            log(f"run {self.folder.path} continues with round {first + 1} of {rounds}")
        for number in range(first, rounds):
            record = self._round(number, ask)
            self.folder.save(self.model, record)
            log(describe(record, rounds))
            after_round(record)
        shared = self.settings.row.shares_online
        if shared:
            self.method.receive({"online": to_tensors(self.model.means["online"])})
        if self.method.wants_labels:
            start_share = self.preset.finetuning.start_share
            average_with_start(self.method.online, self.settings.network_file, start_share)
        self.folder.finish(self.method if shared else None, self.settings)
        log(f"run complete: {', '.join(str(path) for path in self.folder.encoders.values())}")

    def _round(self, number: int, ask: Ask) -> dict[str, Any]:
        """One round of Algorithm 1; returns its line for ``rounds.jsonl``."""
        started = time.perf_counter()
        drawn = self.attendance.draw(number)
        components, estimate = self.coding.networks(number), None
        sent = components
        failures: dict[str, str] = {}
        record: dict[str, Any] = {"round": number, "drawn": drawn, "d": self._exact_distance(components)}
        if self.settings.row.predicts_distance:
            estimate, failures = self._predict_distance(number, drawn, components, record, ask)
            sent = {}  # the distance task already sent them
        elif self.settings.row.predicts_target:
            estimate = record["d"]
        messages = {
            site: self._message(site, sent, self.model.from_others(site), estimate, number)
            for site in drawn
            if site not in failures
        }
        reports: dict[str, Any]
        if self.settings.sums_only:
            every = self.preset.pretraining.calibration_rounds
            counted, record["sum"] = self._sums(components, ask).train(number, every, messages, estimate, failures)
            self._check_enough(number, counted, failures)
            record["loss"], reports = record["sum"]["loss"], {site: {} for site in counted}
        else:
            reports, weights = self._train(number, messages, failures, ask)
            total = sum(weights.values())
            record["loss"] = sum(reports[site]["loss"] * weight for site, weight in weights.items()) / total
            if self.method.wants_labels:
                record["noticed"] = large_losses({site: report["loss"] for site, report in reports.items()})
        record["sites"] = {site: {"status": one_line(reason)} for site, reason in sorted(failures.items())}
        record["sites"] |= {site: {**reports[site], "status": "ok"} for site in sorted(reports)}
        record["bytes"] = self.meter.take(drawn)
        record["seconds"] = time.perf_counter() - started
        return record

    def _train(
        self, number: int, messages: dict[str, Message], failures: dict[str, str], ask: Ask
    ) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
        """Local training at the sites; returns what each site reports, and its weight."""
        every = self.preset.pretraining.calibration_rounds
        spool = Spool(self.folder.path if self.folder.path.is_dir() else None)
        aggregator = Aggregator(self.model, every, self.like, self.partitions, self.settings.protection, spool)
        reports: dict[str, dict[str, Any]] = {}

        def accept(site: str, message: Message) -> None:
            self._check_run(site, message)
            report = read_report(message.meta, site)
            self.coding.incoming(site, message)
            aggregator.accept(site, message)
            reports[site] = report

        failures |= ask(PRETRAIN_TASK, messages, self.settings.pretrain_timeout, accept)
        self.coding.failed(failures)
        failures |= aggregator.settle()
        self._check_enough(number, aggregator.sites, failures)
        weights, previous = aggregator.weights, dict(self.model.means)
        aggregator.finish()
        self.coding.carry_over(previous)
        return {site: reports[site] for site in weights}, weights

    def _predict_distance(
        self, number: int, drawn: Any, components: Any, record: Any, ask: Ask
    ) -> tuple[float, dict[str, str]]:
        """DP: ask every site for dp_c and scale the mean by alpha. The task also sends the site the global network."""
        distances: dict[str, float] = {}

        def accept(site: str, message: Message) -> None:
            self._check_run(site, message)
            if message.round_number != number:
                raise PublicError(f"{site}: the answer belongs to round {message.round_number!r:.40}, not to {number}")
            if message.distance is None:
                raise PublicError(f"{site}: the answer to the distance task has no distance")
            distances[site] = check_distance(message.distance, site)
            self.coding.incoming(site, message)

        messages = {site: self._message(site, components, {}, None, number) for site in drawn}
        if self.settings.sums_only:
            distances, failures = self._sums(components, ask).distances(messages)
        else:
            failures = ask(DISTANCE_TASK, messages, self.settings.distance_timeout, accept)
        self._check_enough(number, list(distances), failures)
        predictor = self.model.predictor
        if record["d"] is not None:
            predictor.calibrate(record["d"])
        estimate = predictor.predict(distances, self.model.trained or None)
        record |= {"d_predicted": estimate, "alpha": predictor.alpha, "distances": distances}
        return estimate, failures

    def _sums(self, components: dict[str, Arrays], ask: Ask) -> SumRound:
        return SumRound(
            self.settings,
            self.model,
            self.coding,
            self.like,
            self.run_info,
            components,
            self.trust,
            ask,
            self._check_run,
        )

    def _check_run(self, site: str, message: Message) -> None:
        """Refuse results of another run, including an earlier run of the same name that was started over."""
        run = message.meta.get("run")
        if not isinstance(run, dict) or run.get("id") != self.run_info["id"]:
            raise PublicError(f"{site}: the result belongs to another run")

    def _exact_distance(self, components: Mapping[str, Arrays]) -> float | None:
        """d(F_theta, F_xi) of the global networks, if the server has both from the last round. The online network is
        the one that is sent down, because the sites measure against it."""
        if not {"online", "target"} <= self.model.fresh:
            return None
        return distance(components["online"], self.model.means["target"])

    def _check_enough(self, number: int, answered: list[str], failures: dict[str, str]) -> None:
        needed = max(1, self.settings.min_sites)
        if len(answered) < needed:
            why = reasons(failures)
            raise PassingError(f"round {number} has {len(answered)} valid answers but needs {needed} ({why})")

    def _message(self, site: str, components: Any, others: Any, estimate: float | None, number: int) -> Message:
        """The message to one site, encoded by the run's codec."""
        message = Message(dict(components), others, estimate, {"round": number, "run": self.run_info})
        return self.coding.outgoing(site, message)
