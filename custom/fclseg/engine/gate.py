"""What may leave a site: what the exchange plan sends up in this round, with the protections that are asked for.

This is the gate of a simulation, where there is no hospital to ask. ``fclseg.hospital.gate`` adds a hospital's policy.
"""

import math
from dataclasses import dataclass, field

from fclseg.engine.messages import Message
from fclseg.engine.site import Site
from fclseg.federation.states import Arrays, to_arrays
from fclseg.methods.exchange import goes_up
from fclseg.privacy.protections import NO_PROTECTION, PrivacySettings
from fclseg.secure_sums.occasion import FEWEST, needed

CURVES = ("loss", "feature_std")
"""The numbers of an answer that the server draws as curves."""


@dataclass
class OpenGate:
    """The gate of one site for one task."""

    site: Site
    task_name: str
    task: Message
    asked: PrivacySettings = NO_PROTECTION  # by the job's filters; its settings may ask for more
    curves: dict[str, float] = field(default_factory=dict)  # numbers of the released answer, for the server's curves

    @property
    def wanted(self) -> PrivacySettings:
        """The protections that the run asks for."""
        return self.site.settings.privacy.stricter(self.asked)

    @property
    def fewest(self) -> int:
        """The fewest sites of a sum that this site's update may be in."""
        return max(FEWEST, self.site.settings.min_sites)

    def admit(self) -> None:
        """Refuse the task if the run is not allowed. Nothing is decoded or written before."""

    def release(self, answer: Message) -> Message:
        """The answer in the form that may leave. Raises if it may not."""
        answer = self.planned(answer)
        self.protect(answer, self.wanted)
        self.curves = self.tellable(answer)
        return answer

    def tellable(self, answer: Message) -> dict[str, float]:
        """The numbers for the server's curves: none in a run of sums, because they are one site's."""
        return {} if self.site.settings.sums_only else curves_of(answer)

    def planned(self, answer: Message) -> Message:
        """Drop the components that the exchange plan does not send up in this round (DP: the target network)."""
        if answer.distance is not None and not (answer.components or answer.others):
            return answer
        leaves = goes_up(self.site.settings.row, answer.round_number, self.site.calibration_rounds)
        answer.components = {name: arrays for name, arrays in answer.components.items() if name in leaves}
        answer.others = {name: states for name, states in answer.others.items() if name in leaves}
        return answer

    def protect(self, answer: Message, settings: PrivacySettings, noise: int | None = None) -> dict[str, float]:
        """Apply the protections to what leaves. Returns the noise multipliers of everything that now has noise."""
        if not settings.shown() or not (answer.components or answer.others):
            return {}
        from fclseg.privacy.protect import Upload, protect  # imports methods and data: a plain round needs neither

        site = self.site.name
        upload = Upload(answer.components, {name: states[site] for name, states in answer.others.items()})
        made = protect(self.site, upload, self.received(), settings, noise, self._noise_share(settings))
        answer.components = made.components
        answer.others = {name: {site: arrays} for name, arrays in made.features.items()}
        return made.multipliers

    def _noise_share(self, settings: PrivacySettings) -> float:
        """In a secure sum the sites add the noise that the job asks for together. A site that asks for more adds all of
        it itself, because the others do not know."""
        own, job = self.site.settings, self.site.settings.privacy
        if not own.shares_noise or (settings.sigma, settings.clip) != (job.sigma, job.clip):
            return 1.0
        from fclseg.engine.site_sums import members

        return 1 / math.sqrt(needed(members(self), own.min_sites))

    def received(self) -> dict[str, Arrays]:
        """The networks of this task or of the distance task of its round."""
        kept = self.site.memory.recall_global(self.task.round_number)
        return {name: to_arrays(part) for name, part in kept.items()} | self.task.components


def curves_of(answer: Message) -> dict[str, float]:
    return {name: answer.meta[name] for name in CURVES if name in answer.meta}
