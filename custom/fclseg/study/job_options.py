"""Options that a study adds to its pre-training jobs: settings of the run, and filters on what the sites send.

If given, they are part of a pre-training's identity, so that the cost of noise or compression can be measured next to
existing results. Nothing here imports NVFlare unless there is a filter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import Parameter, signature
from typing import Any

from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.methods.exchange import SHIPPED, Row

FILTERS = "fclseg.flare.filters"
"""The package that filters must come from: people copy command lines, and a copied one must not run foreign code."""

OWN_SETTINGS = (
    "job", "preset", "changes", "rounds", "seed", "run", "min_sites", "fold", "labels", "anatomy", "encoder",
)  # fmt: skip
"""Settings of a run that the study sets itself."""

WAITING_TIMES = ("pickup_timeout", "distance_timeout", "pretrain_timeout")
"""Settings that do not change what a run computes."""


@dataclass(frozen=True)
class FilterSpec:
    """A filter of this package and its arguments."""

    path: str
    arguments: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.arguments)
        return f"{self.path.rpartition('.')[2]}({given})"

    def check(self) -> None:
        """Refuse a class that is not a filter of this package, and arguments that it does not take."""
        filter_class = _filter_class(self.path)
        known, given = signature(filter_class).parameters, dict(self.arguments)
        if unknown := [name for name in given if name not in known]:
            names = ", ".join(known) or "none"
            raise FCLSegError(f"the filter {self.path} has no argument '{unknown[0]}': it takes {names}")
        needed = [name for name, one in known.items() if one.default is Parameter.empty]
        if missing := [name for name in needed if name not in given]:
            raise FCLSegError(
                f"the filter {self.path} needs '{missing[0]}': give --filter {self.path}:{missing[0]}=..."
            )
        filter_class(**given)  # the filter itself checks the values

    def config(self) -> dict[str, Any]:
        """Its entry in the sites' configuration."""
        return {"path": self.path, "args": dict(self.arguments)}


def _filter_class(path: str) -> type:
    """The class, if it is a filter of this package."""
    refused = FCLSegError(f"there is no filter '{path}': give a class of {FILTERS}, such as {FILTERS}.ClipAndNoise")
    module, _, name = path.rpartition(".")
    if module != FILTERS:
        raise refused
    from fclseg.flare import filters  # imports nvflare, which a study without filters does not need

    found = getattr(filters, name, None)
    if not (isinstance(found, type) and issubclass(found, filters.MessageFilter) and found.__module__ == module):
        raise refused
    return found


@dataclass(frozen=True)
class JobOptions:
    """Settings and filters of a study's pre-trainings. Without any, a pre-training follows its preset."""

    settings: tuple[tuple[str, Any], ...] = ()
    filters: tuple[FilterSpec, ...] = ()

    @classmethod
    def make(cls, settings: Mapping[str, Any], filters: Sequence[FilterSpec]) -> "JobOptions":
        """Parse and check the options, so that a mistake is reported before anything is trained."""
        known = [one.name for one in fields(RunSettings) if one.name not in OWN_SETTINGS]
        if unknown := [name for name in settings if name not in known]:
            raise FCLSegError(f"--job-set cannot set '{unknown[0]}': choose from {', '.join(known)}")
        if settings.get("network", SHIPPED) != SHIPPED:
            # The content of another file would not be part of a cell's key.
            raise FCLSegError(f"--job-set network can only be {SHIPPED}, the weights that come with the bundle")
        RunSettings.read({"job": "fcl", **settings}, environment={})
        for one in filters:
            one.check()
        return cls(tuple(sorted(settings.items())), tuple(filters))

    @property
    def start(self) -> str | None:
        """The network that the pre-trainings start from, if it is not their own choice."""
        return dict(self.settings).get("network")

    def without_own(self, row: Row) -> "JobOptions":
        """The options without what the row's job does anyway."""
        return replace(self, settings=tuple(one for one in self.settings if one != ("network", row.start)))

    def __bool__(self) -> bool:
        return bool(self.settings or self.filters)

    def identity(self) -> dict[str, Any]:
        """What the options add to the identity of a pre-training: nothing if no option was given."""
        found = {
            "job_settings": {name: value for name, value in self.settings if name not in WAITING_TIMES},
            "filters": [[one.path, dict(one.arguments)] for one in self.filters],
        }
        return {name: value for name, value in found.items() if value}

    def __str__(self) -> str:
        """For titles: ``from shipped weights, fraction=0.5, ClipAndNoise(clip=1, sigma=0.1)``."""
        hidden = (*WAITING_TIMES, "network")
        start = [f"from {self.start} weights"] if self.start else []
        settings = [f"{name}={value}" for name, value in self.settings if name not in hidden]
        return ", ".join([*start, *settings, *map(str, self.filters)])

    def document(self) -> dict[str, Any]:
        """The options as plain values, for the report."""
        filters = [{"path": one.path, "arguments": dict(one.arguments)} for one in self.filters]
        return {"settings": dict(self.settings), "filters": filters} if self else {}


PLAIN = JobOptions()
"""The jobs as they are."""
