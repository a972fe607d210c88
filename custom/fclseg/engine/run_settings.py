"""The settings of a run. The server reads them from the job's configuration; sites receive them with every task.

On the server, environment variables can replace some of them. Each party chooses its own folders (``place.py``).
"""

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from fclseg.anatomy.registry import DEFAULT, get_anatomy
from fclseg.errors import FCLSegError
from fclseg.federation.codecs.presets import RunCodec, get_codec
from fclseg.federation.robust import MEAN_RULE, OUTLIERS, REFUSE, RULES, Protection
from fclseg.methods.exchange import FEATURES, OTHERS, ROWS, SHIPPED, Row
from fclseg.presets import Preset, full_name, get_preset
from fclseg.privacy.protections import PrivacySettings, check_privacy
from fclseg.resources import shipped_model
from fclseg.secure_sums.integers import FEWEST_BITS, MOST_BITS
from fclseg.text import one_line, printable

LEAST = {
    "min_sites": 1,
    "pickup_timeout": 0,
    "distance_timeout": 1,
    "pretrain_timeout": 1,
    "fold": 0,
    "labels": 1,
}
"""The minimum of each of these settings. NVFlare treats a time-out of 0 as no time-out, and a run must not wait forever
for a site that has died."""

PATIENCE = ("min_sites", "pickup_timeout", "distance_timeout", "pretrain_timeout", "tracking")
"""Settings that may differ when a run is continued, because they do not change what it computes."""


MOST_NAME, MOST_TEXT = 100, 500
"""Characters of a run's name and of any other text in a job."""
RESERVED = (
    *("audit.jsonl", "audit.lock", "budget.lock", "problems.log", "problems.log.1", "secret.key"),
    *("admitted", "answered", "summed"),
)
"""Files and folders that a site keeps next to its runs."""

TRACKERS = ("mlflow", "wandb")
"""Experiment trackers that a run can write its curves to, beside TensorBoard (``fclseg.flare.tracking``)."""


@dataclass(frozen=True, kw_only=True)
class RunSettings(PrivacySettings):
    """Everything that determines what a run computes, and how long the server waits. The protections of what leaves a
    site are those of ``PrivacySettings``."""

    job: str
    preset: str = "demo"
    changes: dict[str, Any] = field(default_factory=dict)  # values of the preset that are replaced
    rounds: int | None = None  # None: the preset's
    seed: int = 0
    run: str = ""  # name of the run folder; "": <job>-<preset>
    fraction: float = 1.0  # |C_r| / |C|, the fraction of sites drawn per round
    min_sites: int = 1  # with fewer valid answers in a round the run ends
    pickup_timeout: int = 0  # seconds for a site to fetch a task; 0: the task's own time-out
    distance_timeout: int = 600
    pretrain_timeout: int = 7200
    fold: int | None = None  # leave out this fold's validation patients; None: use all patients
    labels: int | None = None  # N labelled patients per site, for methods that train on labels
    anatomy: str | dict[str, Any] = DEFAULT  # what a segmentation network segments: a name or a labels.json
    encoder: str | None = None  # start from this pre-trained encoder, a file on the server
    network: str | None = None  # the same for a whole network (or its encoder, if no more is trained); "shipped": the
    # weights that come with the bundle
    codec: str | None = None  # how networks and features are encoded: a name of CODECS; None: that of the job's row
    tracking: str | None = None  # also write the curves to this tracker: "mlflow" or "wandb"
    aggregation: str = MEAN_RULE  # how the sites' networks are combined
    outliers: str = REFUSE  # what happens to an update whose norm is far above the median
    outlier_factor: float = 10.0  # an outlier is more than this many times the median norm
    weight_cap: float = 10.0  # no site counts more than this many times the median weight
    sums_only: bool = False  # the server learns sums over the sites, never what one of them sends
    sum_bits: int = 8  # bits per number of an update in a sum, 4 to 16
    sum_masks: bool = True  # False: the same integers without masks, to compare with

    def __post_init__(self) -> None:
        # A site checks this too: the name comes from the server and must never lead out of the site's folder of runs.
        plain = self.run == Path(self.run).name == printable(self.run) and not set("{}$") & set(self.run)
        taken = self.run.startswith(".") or self.run.casefold() in RESERVED
        if not plain or taken or len(self.run) > MOST_NAME:
            raise FCLSegError(
                f"'{one_line(self.run, MOST_NAME)}' is not a valid run name: choose a plain folder name of at most "
                f"{MOST_NAME} characters (--name or FCLSEG_RUN)"
            )

    @classmethod
    def read(cls, values: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> "RunSettings":
        """The job's values. FCLSEG_PRESET, FCLSEG_ROUNDS, FCLSEG_SEED and FCLSEG_RUN replace them where set."""
        known = {entry.name for entry in fields(cls)}
        values = with_full_names(values)
        if unknown := sorted(set(values) - known):
            raise FCLSegError(
                f"the job has an unknown setting '{one_line(unknown[0], 60)}': choose from {', '.join(sorted(known))}"
            )
        for name, value in values.items():
            _check_kind(name, value)
        if values.get("job") not in ROWS:
            raise FCLSegError(
                f"there is no job '{one_line(values.get('job'), 60)}' in the exchange plan: it has {', '.join(ROWS)}"
            )
        settings = cls(**values)
        settings = replace(
            settings,
            preset=environment.get("FCLSEG_PRESET") or settings.preset,
            rounds=_integer(environment, "FCLSEG_ROUNDS", settings.rounds),
            seed=_integer(environment, "FCLSEG_SEED", settings.seed) or 0,
            run=environment.get("FCLSEG_RUN") or settings.run,
        )
        preset = settings.build_preset()
        get_anatomy(settings.anatomy)
        get_codec(settings.codec or settings.row.codec)
        if settings.tracking not in (None, *TRACKERS):
            raise FCLSegError(f"there is no tracker '{settings.tracking}': choose one of {', '.join(TRACKERS)}")
        if not 0 < settings.fraction <= 1:
            raise FCLSegError(f"'fraction' cannot be {settings.fraction}: give a number in (0, 1]")
        settings._check_method()
        settings._check_protection()
        settings._check_sums()
        settings._check_privacy(values)
        return replace(
            settings, rounds=preset.pretraining.rounds, run=settings.run or f"{settings.job}-{settings.preset}"
        )

    @classmethod
    def of_preset(cls, job: str, preset: Preset, **values: Any) -> "RunSettings":
        """The settings of a run with this preset, which need not be one of the named ones."""
        standard = get_preset(preset.name).values()
        changes = {name: value for name, value in preset.values().items() if value != standard[name]}
        return cls.read({"job": job, "preset": preset.name, "changes": changes, **values}, environment={})

    def _check_method(self) -> None:
        """Refuse settings that the job's method cannot use, instead of training something the user did not ask for."""
        wants = {name: getattr(self, name) is not None for name in ("encoder", "network", "labels")}
        if not any(wants.values()):
            return
        from fclseg.methods.registry import method_class

        method = method_class(self.row)
        if wants["labels"] and not method.wants_labels:
            raise FCLSegError(f"job '{self.job}' trains without labels and takes no 'labels': leave it out")
        if wants["encoder"] and not method.whole_network:
            raise FCLSegError(f"job '{self.job}' trains no whole network and takes no 'encoder': leave it out")
        if wants["encoder"] and wants["network"]:
            raise FCLSegError("a run starts from an encoder or from a whole network, not from both: leave one out")
        if not self.row.flows and (wants["encoder"] or self.network not in (None, SHIPPED)):
            # Nothing comes down, so each site would open the file itself, and a server must not choose its paths.
            raise FCLSegError(
                f"the sites of job '{self.job}' train alone and can only start from their own installation: "
                f"set 'network' to '{SHIPPED}' or leave 'network' and 'encoder' out"
            )

    @property
    def shares_noise(self) -> bool:
        """Whether the sites of a secure sum add the noise of ``sigma`` together. Then all of them count the same, and
        numbers have 64 bits: rounding noise away would void the privacy budget."""
        return self.sums_only and self.sum_masks and self.sigma > 0

    def _check_sums(self) -> None:
        """Refuse what cannot be computed from sums."""
        if not FEWEST_BITS <= self.sum_bits <= MOST_BITS:
            raise FCLSegError(f"'sum_bits' cannot be {self.sum_bits}: give {FEWEST_BITS} to {MOST_BITS}")
        if not self.sums_only:
            return
        if not self.row.flows or any(flow.combine == OTHERS for flow in self.row.flows):
            raise FCLSegError(f"job '{self.job}' does not only average networks: leave out 'sums_only'")
        if self.aggregation != MEAN_RULE:
            raise FCLSegError(f"'{self.aggregation}' needs single updates: leave out 'aggregation' or 'sums_only'")

    def _check_protection(self) -> None:
        for name, choices in (("aggregation", RULES), ("outliers", OUTLIERS)):
            if getattr(self, name) not in choices:
                raise FCLSegError(f"'{name}' cannot be '{getattr(self, name)}': choose one of {', '.join(choices)}")
        for name in ("outlier_factor", "weight_cap"):
            if not 1 <= getattr(self, name) < math.inf:
                raise FCLSegError(f"'{name}' cannot be {getattr(self, name)}: give a number of at least 1")

    def _check_privacy(self, values: Mapping[str, Any]) -> None:
        check_privacy(values, "the job")
        if self.privacy.on_features and not self.sends_features:
            chosen = next(name for name in self.privacy.shown() if name not in ("clip", "sigma"))
            raise FCLSegError(f"job '{self.job}' sends no features that '{chosen}' could protect: leave it out")

    @property
    def needs_folds(self) -> bool:
        return self.fold is not None or self.labels is not None

    @property
    def row(self) -> Row:
        return ROWS[self.job]

    @property
    def network_file(self) -> Path | None:
        """The file of the network to start from, on this machine."""
        if self.network == SHIPPED:
            return shipped_model(get_anatomy(self.anatomy).bundle, self.preset)
        return None if self.network is None else Path(self.network)

    @property
    def run_codec(self) -> RunCodec | None:
        """None if numbers are sent as they are."""
        return get_codec(self.row.codec if self.codec is None else self.codec)

    def build_preset(self) -> Preset:
        changes = {name: tuple(v) if isinstance(v, list) else v for name, v in self.changes.items()}
        if self.rounds is not None:
            changes["pretraining.rounds"] = self.rounds
        return get_preset(self.preset, **changes)

    @property
    def protection(self) -> Protection:
        return Protection(self.aggregation, self.outliers, self.outlier_factor, self.weight_cap)

    @property
    def privacy(self) -> PrivacySettings:
        """The protections that the job asks for. A site's policy may ask for more."""
        return PrivacySettings.of(self)

    @property
    def sends_features(self) -> bool:
        return any(flow.component in FEATURES for flow in self.row.flows)

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that determine what the run computes. The others may change during the run."""
        return {name: value for name, value in self.to_dict().items() if name not in PATIENCE}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def with_full_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a job or run, those of its preset under their full names."""
    renamed = dict(values)
    if isinstance(renamed.get("changes"), Mapping):
        renamed["changes"] = {full_name(name): value for name, value in _whole_names(renamed["changes"]).items()}
    return renamed


def _whole_names(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a preset under names such as ``images.size``, which ``nvflare job submit`` cuts at the dots."""
    names: dict[str, Any] = {}
    for name, value in changes.items():
        parts = {f"{name}.{part}": one for part, one in value.items()} if isinstance(value, Mapping) else {name: value}
        names |= parts
    return names


KINDS = {
    int: (lambda value: type(value) is int, "a whole number"),
    float: (lambda value: type(value) in (int, float), "a number"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    str: (lambda value: isinstance(value, str), "a text"),
    dict: (lambda value: isinstance(value, Mapping), "settings by name"),
}
"""For each type of setting: the check of a value, and what to give instead."""


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(RunSettings)


def _check_kind(name: str, value: Any) -> None:
    """Refuse a value of the wrong type: a job is a file that people edit."""
    kind = _kinds()[name]
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if value is None and NoneType in kinds:
        return
    tests = [KINDS[get_origin(one) or one] for one in kinds if one is not NoneType]
    wanted = " or ".join(sentence for _, sentence in tests)

    def fits(value: Any) -> bool:
        return any(test(value) for test, _ in tests)

    if name in LEAST:
        wanted += f" of at least {LEAST[name]}"
    if not fits(value) or (name in LEAST and value < LEAST[name]):
        raise FCLSegError(f"the job's '{name}' cannot be {one_line(repr(value), 60)}: give {wanted}")
    if isinstance(value, str) and (len(value) > MOST_TEXT or printable(value) != value):
        raise FCLSegError(f"the job's '{name}' is not a short text on one line: shorten it")


def _integer(environment: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = environment.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise FCLSegError(f"{name} must be a whole number, not '{text}'") from None


def start_over() -> bool:
    """Whether the user asked to delete an earlier run of this name (FCLSEG_FRESH=1)."""
    return os.environ.get("FCLSEG_FRESH", "") not in ("", "0")
