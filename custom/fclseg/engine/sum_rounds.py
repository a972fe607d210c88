"""The parts of a round in which the server learns only sums: the mean of the networks, and that of the distances."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any

from fclseg.engine.coding import Coding
from fclseg.engine.messages import DISTANCE_TASK, PRETRAIN_TASK, Message
from fclseg.engine.model import GlobalModel
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.sums import (
    CONTEXT,
    DISTANCE_SHAPE,
    DISTANCE_STEPS,
    SUM,
    Ask,
    MaskedSum,
    OpenSum,
    RoundSum,
    feedback,
    sum_context,
)
from fclseg.errors import FCLSegError, PublicError
from fclseg.federation.downlink import reference
from fclseg.federation.states import Arrays
from fclseg.methods.exchange import goes_up
from fclseg.secure_sums.identity import Trust
from fclseg.secure_sums.integers import Scales, SumPlan

Check = Callable[[str, Message], None]
"""Refuses an answer of another run."""


@dataclass
class SumRound:
    """One round of a run with ``sums_only``."""

    settings: RunSettings
    model: GlobalModel
    coding: Coding
    like: Mapping[str, Arrays]
    run: Mapping[str, Any]
    networks: dict[str, Arrays]  # that came down in this round
    trust: Trust
    ask: Ask
    check: Check

    def distances(self, messages: dict[str, Message]) -> tuple[dict[str, float], dict[str, str]]:
        """DP: the mean of dp_c over all sites that answer, under the name of each; and the sites that failed."""
        total = self._sum(DISTANCE_TASK)
        failures = total.prepare(sorted(messages))
        context, messages = sum_context(self.settings.row, self.networks), _without(failures, messages)
        total.start(DISTANCE_SHAPE, context)
        failures |= self._collect(DISTANCE_TASK, total, messages, context, {}, self.settings.distance_timeout)
        vector, survivors = total.open(failures)
        summed, count = (int(number) for number in vector.signed()[1])
        if count != len(survivors):
            raise FCLSegError("the sum of the distances has another number of sites than answered: it is not used")
        return dict.fromkeys(survivors, summed / DISTANCE_STEPS / count), failures

    def train(
        self, number: int, every: int, messages: dict[str, Message], distance: float | None, failures: dict[str, str]
    ) -> tuple[list[str], dict[str, Any]]:
        """Local training; the mean becomes the next model. Returns the sites in the sum and their common report.
        ``distance`` came down with the task. ``failures`` gets the sites that failed."""
        row, model, total = self.settings.row, self.model, self._sum(PRETRAIN_TASK)
        failures |= total.prepare(sorted(messages))
        scales, sent = model.scales or Scales(self.settings.sum_bits), sorted(goes_up(row, number, every))
        plan = SumPlan({name: self.like[name] for name in sent}, scales, total.members, feedback(row))
        context = sum_context(row, self.networks, distance, scales.name, sent)
        total.start(plan.shape, context)
        given, messages = {"scales": scales.to_dict()}, _without(failures, messages)
        failures |= self._collect(PRETRAIN_TASK, total, messages, context, given, self.settings.pretrain_timeout)
        vector, survivors = total.open(failures)
        mean = plan.decode(vector, {name: self._base(name) for name in sent}, len(survivors))
        previous = dict(model.means)
        model.means |= mean.networks
        model.fresh, model.trained = set(sent), survivors
        model.scales = None if self.settings.shares_noise else mean.scales
        model.next_round += 1
        self.coding.carry_over(previous)
        return survivors, {**mean.report, "samples": mean.samples}

    def _collect(
        self,
        task: str,
        total: RoundSum,
        messages: dict[str, Message],
        context: str,
        given: Mapping[str, Any],
        timeout: int,
    ) -> dict[str, str]:
        """Send the task and add up the answers."""
        lock, done = Lock(), Event()

        def accept(site: str, message: Message) -> None:
            self.check(site, message)
            if message.round_number != self.model.next_round:
                raise PublicError(f"{site}: the answer belongs to another round")
            if message.components or message.others or message.distance is not None:
                raise PublicError(f"{site}: an update arrived outside the sum: run the same version everywhere")
            if message.meta.get(CONTEXT) != context:
                raise PublicError(f"{site}: it has other networks or scales than the others and cannot be in the sum")
            with lock:  # answers may arrive at the same time, and late ones after the list of survivors was made
                if done.is_set():
                    raise PublicError(f"{site}: its update arrived too late for the sum")
                total.accept(site, message)
                self.coding.incoming(site, message)  # it has the networks of this round

        asked = {site: total.addressed(site, message) for site, message in messages.items()}
        for message in asked.values():
            message.meta[SUM] |= given
        found = self.ask(task, asked, timeout, accept)
        with lock:
            done.set()
        self.coding.failed(found)
        return found

    def _base(self, name: str) -> Arrays:
        """What the sites compare their component with."""
        found = reference(name, self.networks, dict(self.like[name]))
        assert found is not None, "the online network always comes down"
        return found

    def _sum(self, task: str) -> RoundSum:
        if not self.settings.sum_masks:
            return OpenSum()
        return MaskedSum(self.settings, self.run, self.model.next_round, task, self.ask, self.trust)


def _without(failures: Mapping[str, str], messages: dict[str, Message]) -> dict[str, Message]:
    return {site: message for site, message in messages.items() if site not in failures}
