"""What a hospital allows: the entry ``policy`` of its own ``local/fclseg.json``.

The site's executor checks this policy before each task and again before anything leaves (``gate.py``). The code that
the hospital installed reads it from the site's disk each time, so no job can loosen it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fclseg.engine.place import Place
from fclseg.errors import FCLSegError, PublicError
from fclseg.methods.exchange import DISTANCE, FEATURES, ROWS
from fclseg.presets import PRESETS, full_name
from fclseg.privacy.protections import NAMES as PRIVACY
from fclseg.privacy.protections import PrivacySettings, check_privacy
from fclseg.secure_sums.occasion import FEWEST

EVERYTHING = frozenset({flow.component for row in ROWS.values() for flow in row.flows} | {DISTANCE})
"""All components of the exchange plan."""


@dataclass(frozen=True, kw_only=True)
class Policy(PrivacySettings):
    """By default all jobs of the package may train, and no features may leave. Of its protections and those that a job
    asks for, the stricter apply."""

    jobs: tuple[str, ...] = tuple(ROWS)
    presets: tuple[str, ...] = tuple(PRESETS)
    changes: tuple[str, ...] = ()  # settings of a preset that a job may change
    components: tuple[str, ...] = tuple(sorted(EVERYTHING - FEATURES))  # what may leave, the distance included
    epsilon: float | None = None  # privacy budget of this site over all runs; None: no budget
    delta: float = 1e-5  # the delta of this budget
    rounds: int = 1000  # maximum number of rounds per run
    hours: float = 720.0  # maximum time from the first task of a run to its last
    patients: int = 1  # minimum number of patients in a round
    repeats: int = 5  # rounds of a run that may be asked again with other networks, as after a crash of the server
    curves: bool = True  # whether losses and the spread of features go to the server's curves
    sum_of: int | None = None  # updates leave only inside secure sums of at least so many sites; None: also alone
    approval: bool = False  # whether somebody at the site must approve a run before its first task

    @classmethod
    def read(cls, values: object) -> "Policy":
        """The policy in a site's file. Unknown entries and wrong types are errors, because a typo must not loosen
        the policy."""
        if not isinstance(values, Mapping):
            raise FCLSegError(f"the site's policy is not an object: write it as {WHERE}")
        known = {entry.name: entry.default for entry in fields(cls)}
        if unknown := sorted(set(values) - set(known)):
            raise FCLSegError(f"the site's policy has no '{unknown[0]}': it has {', '.join(known)}")
        chosen = {name: _checked(name, value) for name, value in values.items()}
        check_privacy(chosen, "the site's policy")
        if not chosen.get("delta", cls.delta) < 1:
            raise FCLSegError(f"the site's policy has 'delta' as {chosen['delta']}: give a number > 0 and < 1")
        return cls(**chosen)

    @classmethod
    def of(cls, place: Place) -> "Policy":  # type: ignore[override]
        """The policy of the site at this place, as its file says now."""
        return cls.read(place.own.get("policy", {}))

    @property
    def privacy(self) -> PrivacySettings:
        return PrivacySettings.of(self)

    def check_run(self, job: str, preset: str, changes: Mapping[str, Any], rounds: int) -> None:
        """Refuse a run that the site does not allow, before its first task."""
        if job not in self.jobs:
            raise PolicyError(f"this site does not allow job '{job}'")
        if preset not in self.presets:
            raise PolicyError(f"this site does not allow preset '{preset}'")
        if foreign := sorted(set(changes) - set(self.changes)):
            raise PolicyError(f"this site does not allow a run to change '{foreign[0]}' of its preset")
        if rounds > self.rounds:
            raise PolicyError(f"the run has {rounds} rounds, but this site allows at most {self.rounds}")

    def check_sums(self, in_sums: bool) -> None:
        if self.sum_of is not None and not in_sums:
            raise PolicyError(
                f"updates of this site leave only in sums of at least {self.sum_of} sites: set 'sums_only' in the job"
            )

    def check_hours(self, hours: float) -> None:
        if hours > self.hours:
            raise PolicyError(f"the run has lasted longer than the {self.hours:g} hours that this site allows")

    def check_patients(self, count: int) -> None:
        if count < self.patients:
            raise PolicyError("this site has fewer patients for the run than its policy requires")

    def check_components(self, names: set[str]) -> None:
        """Refuse to send components that must stay at the site."""
        if kept := sorted(names - set(self.components)):
            raise PolicyError(f"this site does not let component '{kept[0]}' leave")


class PolicyError(PublicError):
    """A refusal by the site. The server may read its text."""


WHERE = '"policy": {...} in local/fclseg.json'
_TEXTS = ("jobs", "presets", "changes", "components")
_WHOLE, _FLAGS = ("rounds", "patients", "repeats", "sum_of"), ("approval", "curves")


def _checked(name: str, value: object) -> Any:
    """The value, converted and checked. Errors address the person who wrote the file."""
    if name in _TEXTS:
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise FCLSegError(f"the site's policy has '{name}' as {value!r}: give a list of names")
        choices = {"jobs": set(ROWS), "presets": set(PRESETS), "components": set(EVERYTHING)}.get(name)
        if choices is not None and (unknown := sorted(set(value) - choices)):
            known = ", ".join(sorted(choices))
            raise FCLSegError(f"the site's policy names '{unknown[0]}' in '{name}': choose from {known}")
        return tuple(full_name(entry) for entry in value) if name == "changes" else tuple(value)
    if name in PRIVACY:  # checked together, by their own rules
        return value
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise FCLSegError(f"the site's policy has '{name}' as {value!r}: give true or false")
        return value
    whole = name in _WHOLE
    fits = type(value) is int if whole else type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    least = FEWEST if name == "sum_of" else 1 if whole else 0
    if not fits or value < least or (name in ("hours", "epsilon", "delta") and not value):  # type: ignore[operator]
        kind, bound = "whole number" if whole else "number", f">= {least}" if least > 1 else "> 0"
        raise FCLSegError(f"the site's policy has '{name}' as {value!r}: give a {kind} {bound}")
    return value


SAMPLE = """\
// Settings of this hospital's site and what it allows. Lines that start with // are comments. Only this site reads it.
{
  // "data": the folder of images. Without it the site does no task.
  // "cache": pre-processed images. "runs": the site's memory between rounds, its audit file and its problems.
  // "threads": torch threads for training. "device": cpu, cuda, cuda:1 ... "splits": a splits file.
  "data": null,

  "policy": {
    // "jobs": names of the jobs that may run here. Without it: all jobs of the package.
    // "presets": presets that may be used.
    // "changes": settings of a preset that a job may change. Small batches make it easier to reconstruct images.
    "presets": ["demo", "small", "standard", "paper"],
    "changes": [],

    // "components": what may leave. Without it: network weights and the distance, but no features
    // ("bank" and "dictionary": feature vectors of single slices, which all other sites receive).

    // Protection of features before they leave, regardless of the job (docs/privacy.md): "perturb", the fraction of
    // entries that is removed; "mix", images per feature; "prototypes", means per partition; "feature_noise".
    // "clip": updates are clipped to this Euclidean norm. "sigma": noise on each value, as a multiple of clip.
    // "epsilon": the privacy budget of all runs together, with its "delta". When it is spent, nothing leaves anymore.

    // "sum_of": updates leave only inside a secure sum of at least so many sites, 3 or more (docs/secure_sums.md).

    // Maximum rounds and hours per run, and the minimum number of patients to train on.
    "rounds": 1000,
    "hours": 720,
    "patients": 1,

    // "repeats": rounds of a run that may be asked again with other networks, as after a crash of the server.
    // "curves": false keeps losses and the spread of features out of the server's curves.

    // true: a new run does nothing here until somebody at this site has typed `fclseg site approve`.
    "approval": false
  }
}
"""
"""What a new kit holds."""
