"""What a study is made of: cells, each named by everything that determines its result.

A cell is one pre-training run or one fine-tuning. Its key is a hash of its *identity*: methods, preset values, seeds,
split and a fingerprint of the images, but no paths and no names of machines. Two tables that need the same cell share
it, and a changed setting makes a new one. Nothing here imports torch: a study that has all its cells answers at once.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fclseg.presets import Preset

RECIPE = 2
"""Raise when the training code changes what it computes; a test notices, because stored results are then stale."""

RANDOM = "random"
"""The row without pre-training."""

FEDERATED_JOB = "finetune_federated"
"""The job of federated fine-tuning; the one row of the exchange plan that is no pre-training."""

FULL, FROZEN = "full", "frozen"
"""The two readings: the whole network is fine-tuned (what a user gets), or a decoder on a frozen encoder (feature
quality)."""

FINETUNE_SETTINGS = (
    "finetune_epochs",
    "finetune_steps",
    "finetune_rounds",
    "finetune_batch",
    "finetune_lr",
    "encoder_lr_factor",
    "frozen_epochs",
)
SHARED_SETTINGS = ("image_size", "pixel_scale", "channels")


def content_key(identity: dict[str, Any]) -> str:
    """A short hash of nested plain values, the same in every process and on every machine."""
    text = json.dumps({"recipe": RECIPE} | identity, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Dataset:
    """Images and their split into sites and folds. Only ``fingerprint`` is part of a cell's identity."""

    root: Path
    layout: str
    splits: Path
    fingerprint: str


@dataclass(frozen=True)
class Pretraining:
    """One federated pre-training: a row of the paper on a data set; shared by all tables that fine-tune from it."""

    method: str
    seed: int
    preset: Preset
    data: Dataset

    kind = "pre-training"
    exclusive = True  # its sites are processes of their own and fill all cores

    @cached_property
    def key(self) -> str:
        settings = {name: value for name, value in asdict(self.preset).items() if name not in FINETUNE_SETTINGS}
        identity = {"method": self.method, "seed": self.seed, "preset": settings, "data": self.data.fingerprint}
        return content_key({"kind": "pretraining"} | identity)

    @property
    def name(self) -> str:
        """The name of its run folder, for people; the key at its end keeps it unique."""
        return f"{self.method}-{self.preset.name}-seed{self.seed}-{self.key[:8]}"

    def folder(self, studies: Path) -> Path:
        """Its run folder, below the folder of all studies."""
        return studies / "runs" / self.name

    def describe(self) -> str:
        return f"pre-training {self.method} (seed {self.seed})"


@dataclass(frozen=True)
class Finetuning:
    """One fine-tuning: ``labels`` annotated patients of ``site`` (None: of all sites together) in one fold."""

    protocol: str
    method: str
    labels: int
    site: str | None
    fold: int
    seed: int
    reading: str
    preset: Preset
    data: Dataset
    pretraining: Pretraining | None

    # Federated ones, too: they are short, and one trains while the other starts its processes or ends them.
    exclusive = False

    @property
    def kind(self) -> str:
        """Cells of one kind take about the same time."""
        return f"{self.protocol} N={self.labels} {self.reading}"

    @cached_property
    def key(self) -> str:
        settings = {name: getattr(self.preset, name) for name in (*SHARED_SETTINGS, *FINETUNE_SETTINGS)}
        if self.reading == FROZEN:  # a frozen encoder has neither a rate nor a warm-up
            settings |= {"encoder_lr_factor": None, "frozen_epochs": None}
        identity = {
            "protocol": self.protocol,
            "labels": self.labels,
            "site": self.site,
            "fold": self.fold,
            "seed": self.seed,
            "reading": self.reading,
            "preset": settings,
            "data": self.data.fingerprint,
            "pretraining": self.pretraining and self.pretraining.key,
        }
        return content_key({"kind": "finetuning"} | identity)

    def describe(self) -> str:
        where = f" {self.site}" if self.site else ""
        return f"{self.protocol} {self.method} N={self.labels}{where} fold {self.fold} seed {self.seed} {self.reading}"


Cell = Pretraining | Finetuning
