"""The cells of a study, each identified by everything that determines its result.

A cell is one pre-training run or one fine-tuning. Its key is a hash of its *identity*: methods, preset values, seeds,
split and a fingerprint of the images, but no paths and no machine names. Tables that need the same cell share it, and a
changed setting makes a new cell. Nothing here imports torch, so a study with all cells in its cache answers at once.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from fclseg.anatomy.base import Anatomy
from fclseg.errors import FCLSegError
from fclseg.methods.exchange import ENCODER, MODEL, NETWORK, SHIPPED, get_row
from fclseg.presets import Preset
from fclseg.resources import shipped_model
from fclseg.study.job_options import PLAIN, JobOptions

FORMAT = 3
"""Of stored results. Increase it when the training code computes something else or a stored file means something else:
results of another format are refused with a sentence."""

RANDOM = "random"
"""The row without pre-training. The row ``SHIPPED`` has none either: it starts from the weights of the bundle."""

FEDERATED_JOB = "finetune_federated"
"""The job of federated fine-tuning, the only row of the exchange plan that is not a pre-training."""

FULL, FROZEN = "full", "frozen"
"""The two modes of evaluating an encoder: full fine-tuning (what a user gets) and frozen-encoder evaluation, which
trains only the decoder (feature quality)."""

FINETUNED_WITH = ("images.size", "images.pixel_scale", "networks.channels", "networks.patch")
"""Settings of other groups that a fine-tuning depends on."""

NOT_IN_KEYS = (
    "pretraining.adaptation_rounds",
    "finetuning.model_lr",
    "finetuning.model_steps",
    "finetuning.model_fewest_epochs",
    "finetuning.model_start_share",
)
"""Settings that replace others (``Preset.adaptation`` and ``from_model``); keys list the replaced ones."""


def _settings(preset: Preset, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """The settings in a cell's identity."""
    return {name: value for name, value in preset.values().items() if wanted(name) and name not in NOT_IN_KEYS}


def content_key(identity: dict[str, Any]) -> str:
    """A short hash of nested plain values, the same in every process and on every machine."""
    text = json.dumps({"format": FORMAT} | identity, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@cache
def shipped_fingerprint(bundle: str, preset: str) -> str:
    """A fingerprint of the weights that come with a bundle: a run that starts from other weights is a different run."""
    path = shipped_model(bundle, preset)
    if not path.is_file():
        raise FCLSegError(f"the bundle {bundle} has no weights to start from: make them with `make weights`")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:20]


@dataclass(frozen=True)
class Dataset:
    """Images and their split into sites and folds. Only ``fingerprint`` is part of a cell's identity."""

    root: Path
    anatomy: Anatomy
    splits: Path
    fingerprint: str
    note: str = ""  # what is special about the split, for people


@dataclass(frozen=True)
class Pretraining:
    """One federated pre-training: a row of the paper on a data set. All tables that fine-tune from it share it."""

    job: str
    seed: int
    preset: Preset
    data: Dataset
    options: JobOptions = PLAIN
    fold: int | None = None  # leave out the held-out patients of this fold; None: all patients

    kind = "pre-training"

    @property
    def exclusive(self) -> bool:
        """With NVFlare's filters each of its sites is a process, and together they use all cores. Without, its sites
        take turns in one process with one computing thread."""
        return bool(self.options.filters)

    @cached_property
    def key(self) -> str:
        settings = _settings(self.preset, lambda name: not name.startswith("finetuning."))
        identity = {
            "job": self.job,
            "seed": self.seed,
            "preset": settings,
            "data": self.data.fingerprint,
            "unseen fold": self.fold,
        }
        if self.start:
            identity["start"] = shipped_fingerprint(self.data.anatomy.bundle, self.preset.name)
        return content_key({"kind": "pretraining"} | identity | self.options.identity())

    @property
    def start(self) -> str | None:
        """The network that it starts from: that of the options or of the job's row."""
        return self.options.start or get_row(self.job).start

    @property
    def hands_over(self) -> str:
        """What fine-tuning starts from. What a method does not train stays that of a network that segments."""
        return MODEL if self.start else get_row(self.job).hands_over

    @property
    def name(self) -> str:
        """A readable name for its run folder. The key at the end makes it unique."""
        return f"{self.job}-{self.preset.name}-seed{self.seed}-{self.key[:8]}"

    def folder(self, studies: Path) -> Path:
        """Its run folder, below the folder of all studies."""
        return studies / "runs" / self.name

    def describe(self) -> str:
        fold = "" if self.fold is None else f"without fold {self.fold}"
        details = (f"seed {self.seed}", fold, self.data.note, str(self.options))
        return f"pre-training {self.job} ({', '.join(filter(None, details))})"


@dataclass(frozen=True)
class Finetuning:
    """One fine-tuning: ``labels`` labelled patients of ``site`` (None: of all sites together) in one fold."""

    protocol: str
    job: str
    labels: int
    site: str | None
    fold: int
    seed: int
    mode: str
    preset: Preset
    data: Dataset
    pretraining: Pretraining | None

    exclusive = False  # one process with one computing thread, also if it is federated

    @property
    def whole_network(self) -> bool:
        """Whether it starts from encoder and decoder. Frozen-encoder evaluation takes only the encoder."""
        if self.mode != FULL:
            return False
        if self.pretraining is None:
            return self.job == SHIPPED
        return self.pretraining.hands_over != ENCODER

    @property
    def kind(self) -> str:
        """Cells of the same kind take about the same time."""
        return f"{self.protocol} N={self.labels} {self.mode}"

    @cached_property
    def key(self) -> str:
        settings = _settings(self.preset, lambda name: name in FINETUNED_WITH or name.startswith("finetuning."))
        if self.mode == FROZEN:  # a frozen encoder has neither a learning rate nor a warm-up
            settings |= {"finetuning.encoder_lr_factor": None, "finetuning.frozen_epochs": None}
        identity = {
            "protocol": self.protocol,
            "labels": self.labels,
            "site": self.site,
            "fold": self.fold,
            "seed": self.seed,
            "mode": self.mode,
            "preset": settings,
            "data": self.data.fingerprint,
            "pretraining": self.pretraining and self.pretraining.key,
        }
        if self.job == SHIPPED:
            identity["start"] = shipped_fingerprint(self.data.anatomy.bundle, self.preset.name)
        elif self.whole_network:
            identity["start"] = NETWORK
        return content_key({"kind": "finetuning"} | identity)

    def describe(self) -> str:
        where = f" {self.site}" if self.site else ""
        return f"{self.protocol} {self.job} N={self.labels}{where} fold {self.fold} seed {self.seed} {self.mode}"


Cell = Pretraining | Finetuning
