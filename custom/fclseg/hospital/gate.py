"""The gate of a hospital: what a run may ask for, and what may leave. The executor passes every task through it.

It is part of the installed package and reads the site's own policy, so no job can bypass it. Results are checked last,
after training. Components that the exchange plan does not send in this round stay at the site. A component that the
policy does not let leave stops the whole result. The line in the audit file is on disk before its result leaves.
"""

import math
import time
from collections.abc import Collection, Mapping
from typing import Any

from fclseg.engine.gate import OpenGate
from fclseg.engine.messages import PRETRAIN_TASK, REPORT, Message
from fclseg.federation.robust import update_norm
from fclseg.federation.states import Arrays, to_arrays
from fclseg.hospital.admission import Admission, Admissions, fingerprint, hours_since
from fclseg.hospital.audit import REFUSED, SENT, Audit
from fclseg.hospital.budget import Budget
from fclseg.hospital.ledger import Ledger, question
from fclseg.hospital.plausible import check_plausible, check_start
from fclseg.hospital.policy import Policy, PolicyError
from fclseg.methods.exchange import DISTANCE, FEATURES, NEVER, SHIPPED
from fclseg.privacy.accountant import UPDATE_SENSITIVITY
from fclseg.privacy.protections import NETWORKS, PrivacySettings
from fclseg.text import one_line


class Gate(OpenGate):
    """The gate of one hospital for one task."""

    @property
    def policy(self) -> Policy:
        """What the hospital's file says now: it may have changed since the training began."""
        return Policy.of(self.site.place)

    @property
    def fewest(self) -> int:
        return max(super().fewest, self.policy.sum_of or 0)

    def admit(self) -> None:
        """Refuse the task if the policy forbids the run."""
        try:
            self._admit()
        except PolicyError as error:
            self._note(REFUSED, reason=str(error))
            raise

    def _admit(self) -> None:
        place, settings, policy = self.site.place, self.site.settings, self.policy
        rounds = self.site.rounds
        policy.check_run(settings.job, settings.preset, self.site.foreign_changes, rounds)
        leaves = {flow.component for flow in settings.row.flows if flow.up != NEVER}
        policy.check_components(leaves)  # this and the next also before anything leaves; here, before training
        self._check_protections(leaves, self.wanted.stricter(policy.privacy))
        policy.check_sums(settings.sums_only and settings.sum_masks)
        if not 0 <= self.task.round_number < rounds:
            raise PolicyError(f"the task is for round {self.task.round_number}, outside the run's {rounds} rounds")
        asked = Admission(
            run=settings.run,
            fingerprint=fingerprint(self.site.run_id, settings.identity),
            job=settings.job,
            preset=settings.preset,
            rounds=rounds,
            submitter=place.submitter,
            asked=time.time(),
        )
        known = Admissions(place.runs).admit(asked, policy.approval)
        policy.check_hours(hours_since(known.asked))
        Budget(place.runs).after(policy, self._price(leaves))
        if policy.patients > 1:
            policy.check_patients(self.site.patient_count)

    def release(self, answer: Message) -> Message:
        """The answer in the form that may leave. Raises if it may not."""
        answer = self.planned(answer)
        policy, budget = self.policy, Budget(self.site.place.runs)
        settings = self.wanted.stricter(policy.privacy)
        try:
            policy.check_components(_names(answer))
            self._check_protections(_names(answer), settings)
            with budget.held():
                exchange, number = self._exchange(answer, settings), self.task.round_number
                ledger = Ledger(
                    self.site.place.runs, self.site.settings.run, fingerprint("", self.site.settings.identity)
                )
                ledger.check(self.task_name, number, exchange, policy.repeats)
                multipliers = self.protect(answer, settings, ledger.noise(exchange))
                covered = self._covered(answer, multipliers)
                epsilon = budget.after(policy, multipliers)
                ledger.note(self.task_name, number, exchange)
                self._note(
                    SENT,
                    curves=policy.curves and not self.site.settings.sums_only,
                    report={name: answer.meta[name] for name in REPORT if name in answer.meta},
                    components=answer.payload(),
                    norm=self._norm(answer),
                    privacy=settings.shown(),
                    multipliers=multipliers,
                    covered=covered >= _names(answer),
                    epsilon=epsilon,
                )
        except PolicyError as error:
            self._note(REFUSED, reason=str(error))
            raise
        self.curves = self.tellable(answer) if policy.curves else {}
        return answer

    def _exchange(self, answer: Message, settings: PrivacySettings) -> str:
        """The checksum of a question and its answer without noise: only the same ones may be exchanged again. The
        protections belong to it: two answers with the same noise, but different amounts of it, would show both."""
        received = self.received()
        check_plausible(received)
        self._check_start(received)
        parts = {f"received {name}": arrays for name, arrays in received.items()}
        parts |= {f"answer {name}": arrays for name, arrays in answer.components.items()}
        for way, states in (("received", self.task.others), ("answer", answer.others)):
            parts |= {
                f"{way} {name} {site}": part for name, by_site in states.items() for site, part in by_site.items()
            }
        protections = (settings.shown(), self._noise_share(settings)) if answer.distance is None else ()
        return question(parts, (self.task.distance, answer.distance, *protections))

    def _check_start(self, received: Mapping[str, Arrays]) -> None:
        """In the first round a site knows what must come down, unless the run starts from a file of the server."""
        settings = self.site.settings
        if self.task.round_number or settings.encoder or settings.network not in (None, SHIPPED):
            return
        method = self.site.build_method()
        if settings.network_file:
            method.start_from(settings.network_file)
        check_start(received, {name: to_arrays(method.send(name)) for name in received})

    def _check_protections(self, names: set[str], settings: PrivacySettings) -> None:
        """Refuse what cannot leave with the protections that the policy asks for."""
        features = names & FEATURES
        if features and self.policy.clip is not None and not settings.on_features:
            raise PolicyError(f"this site clips what it sends, but '{min(features)}' cannot be clipped")
        noisy = (features if settings.feature_noise else set()) | (names - features if settings.sigma else set())
        if self.policy.epsilon is not None and (open_ones := sorted(names - (noisy - {DISTANCE}))):
            raise PolicyError(f"this site has a privacy budget, but '{open_ones[0]}' would leave without noise")

    def _price(self, leaves: set[str]) -> dict[str, float]:
        """What this task's networks will cost of the budget. The price of features depends on the images."""
        sigma = self.wanted.stricter(self.policy.privacy).sigma
        trains = self.task_name == PRETRAIN_TASK and bool(leaves - FEATURES - {DISTANCE})
        return {NETWORKS: sigma / UPDATE_SENSITIVITY} if trains and sigma else {}

    def _covered(self, answer: Message, multipliers: Collection[str]) -> set[str]:
        """The names of the components that leave with noise."""
        return set(multipliers) | (set(answer.components) if NETWORKS in multipliers else set())

    def _norm(self, answer: Message) -> float | None:
        """Euclidean norm of the update as it leaves, over all networks; None if there is no update."""
        received = self.received()
        known = [update_norm(arrays, received[name]) for name, arrays in answer.components.items() if name in received]
        return math.hypot(*known) if known else None

    def _note(self, outcome: str, **details: Any) -> None:
        place, settings = self.site.place, self.site.settings
        Audit(place.runs).note(
            outcome=outcome,
            run=settings.run,
            run_id=self.site.run_id,
            round=self.task.round_number,
            task=self.task_name,
            job=settings.job,
            preset=settings.preset,
            job_id=one_line(place.job_id),
            submitter=one_line(place.submitter),
            **details,
        )


def _names(answer: Message) -> set[str]:
    """The names of everything in an answer, except for the numbers of its report."""
    return {*answer.components, *answer.others} | ({DISTANCE} if answer.distance is not None else set())
