"""The gate of a hospital: what a run may ask for, and what may leave. The executor passes every task through it.

It is part of the installed package and reads the site's own policy, so no job can bypass it. Results are checked last,
after training. Components that the exchange plan does not send in this round stay at the site. A component that the
policy does not let leave stops the whole result. The line in the audit file is on disk before its result leaves.
"""

import math
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from fclseg.federation.exchange import DISTANCE, goes_up
from fclseg.federation.robust import update_norm
from fclseg.federation.states import Arrays, to_arrays
from fclseg.flare.diagnostics import PREFIX
from fclseg.flare.messages import CALIBRATES, Message
from fclseg.flare.site import Site
from fclseg.hospital.admission import Admission, Admissions, fingerprint, hours_since
from fclseg.hospital.audit import REFUSED, SENT, Audit
from fclseg.hospital.budget import Budget
from fclseg.hospital.policy import PolicyError
from fclseg.privacy.settings import NETWORKS, NO_PROTECTION, PrivacySettings


@dataclass
class Gate:
    """The gate of one site for one task."""

    site: Site
    task_name: str
    task: Message
    asked: PrivacySettings = NO_PROTECTION  # by the job's filters; its settings may ask for more

    def admit(self) -> None:
        """Refuse the task if the policy forbids the run. In a simulation there is no hospital to ask."""
        if self.site.place.simulated:
            return
        try:
            self._admit()
        except PolicyError as error:
            self._note(REFUSED, reason=str(error))
            raise

    def _admit(self) -> None:
        place, settings, policy = self.site.place, self.site.settings, self.site.place.policy
        rounds = self.site.rounds
        policy.check_run(settings.job, settings.preset, self.site.foreign_changes, rounds)
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
        Budget(place.runs).after(policy, {})
        if policy.patients > 1:
            policy.check_patients(self.site.patient_count)

    def release(self, answer: Message) -> Message:
        """The answer in the form that may leave. Raises if it may not."""
        answer = self._planned(answer)
        wanted = self.site.settings.privacy.stricter(self.asked)
        if self.site.place.simulated:
            self._protect(answer, wanted)
            return answer
        policy, budget = self.site.place.policy, Budget(self.site.place.runs)
        settings = wanted.stricter(policy.privacy)
        try:
            policy.check_components(_names(answer))
            self._check_possible(answer, settings)
            with budget.held():
                multipliers = self._protect(answer, settings)
                covered = self._covered(answer, multipliers)
                if policy.epsilon is not None and (open_ones := sorted(_names(answer) - covered)):
                    raise PolicyError(f"this site has a privacy budget, but '{open_ones[0]}' would leave without noise")
                epsilon = budget.after(policy, multipliers)
                self._note(
                    SENT,
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
        return answer

    def _planned(self, answer: Message) -> Message:
        """Drop the components that the exchange plan does not send up in this round (DP: the target network)."""
        if answer.distance is not None and not (answer.components or answer.others):
            return answer
        calibrates = self.task.meta.get(CALIBRATES, True) is not False  # the server can ask for less, never for more
        leaves = goes_up(self.site.settings.row, answer.round_number, self.site.calibration_rounds, calibrates)
        answer.components = {
            name: arrays
            for name, arrays in answer.components.items()
            if name in leaves or (self.site.settings.diagnostics and name.startswith(PREFIX))
        }
        answer.others = {name: states for name, states in answer.others.items() if name in leaves}
        return answer

    def _check_possible(self, answer: Message, settings: PrivacySettings) -> None:
        """Refuse what the policy's protections cannot be applied to."""
        if not answer.others:
            return
        if self.site.place.policy.clip is not None and not settings.on_features:
            raise PolicyError(f"this site clips what it sends, but '{next(iter(answer.others))}' cannot be clipped")

    def _protect(self, answer: Message, settings: PrivacySettings) -> dict[str, float]:
        """Apply the protections to what leaves. Returns the noise multipliers of everything that now has noise."""
        if not settings.shown() or not (answer.components or answer.others):
            return {}
        from fclseg.privacy.protect import Upload, protect  # imports methods and data: a plain round needs neither

        site = self.site.name
        upload = Upload(answer.components, {name: states[site] for name, states in answer.others.items()})
        made = protect(self.site, upload, received_networks(self.site, self.task), settings)
        answer.components = made.components
        answer.others = {name: {site: arrays} for name, arrays in made.features.items()}
        return made.multipliers

    def _covered(self, answer: Message, multipliers: Collection[str]) -> set[str]:
        """The names of the components that leave with noise."""
        return set(multipliers) | (set(answer.components) if NETWORKS in multipliers else set())

    def _norm(self, answer: Message) -> float | None:
        """Euclidean norm of the update as it leaves, over all networks; None if there is no update."""
        received = received_networks(self.site, self.task)
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
            job_id=place.job_id,
            submitter=place.submitter,
            **details,
        )


def _names(answer: Message) -> set[str]:
    """The names of everything in an answer, except for the numbers of its report."""
    return {*answer.components, *answer.others} | ({DISTANCE} if answer.distance is not None else set())


def received_networks(site: Site, task: Message) -> dict[str, Arrays]:
    """The networks of this task or of the distance task of its round."""
    kept = site.memory.recall_global(task.round_number)
    return {name: to_arrays(part) for name, part in kept.items()} | task.components
