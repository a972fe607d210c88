"""The settings of a preset in four groups: images, networks, pre-training and fine-tuning.

A setting is named ``group.field``, for example ``finetuning.lr``. Each field states which values it accepts, so that an
invalid value is refused here and not deep inside a run.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

from fclseg.anatomy.base import Anatomy
from fclseg.errors import FCLSegError

STEPS_OF_A_PATIENT = 2
"""Optimiser steps in which the network sees the labelled slices of one patient (about 20) once."""


class Accepts(NamedTuple):
    """Which values a setting accepts, and how an error message describes them."""

    test: Callable[[Any], bool]
    wanted: str


def _number(inside: Callable[[float], bool], wanted: str) -> Accepts:
    return Accepts(lambda value: type(value) in (int, float) and inside(value), wanted)


def _whole(smallest: int) -> Accepts:
    return Accepts(lambda value: type(value) is int and value >= smallest, f"a whole number of at least {smallest}")


def _optional(accepts: Accepts) -> Accepts:
    return Accepts(lambda value: value is None or accepts.test(value), accepts.wanted)


def _one_of(*words: str) -> Accepts:
    return Accepts(lambda value: value in words, f"one of {', '.join(words)}")


POSITIVE = _number(lambda value: 0 < value < math.inf, "a number above 0")
NOT_NEGATIVE = _number(lambda value: 0 <= value < math.inf, "a number of at least 0")
SHARE = _number(lambda value: 0 <= value <= 1, "a number from 0 to 1")
SOME = _number(lambda value: 0 < value <= 1, "a number above 0 and at most 1")
COUNT = _whole(1)
YES_OR_NO = Accepts(lambda value: type(value) is bool, "true or false")
BATCH = _whole(2)  # BatchNorm has no variance over one image
WIDTHS = Accepts(
    lambda value: isinstance(value, tuple) and len(value) > 1 and all(type(part) is int and part > 0 for part in value),
    "whole numbers, for example 8,16,32",
)


def setting(accepts: Accepts, **default: Any) -> Any:
    """A dataclass field with the values it accepts."""
    return field(metadata={"accepts": accepts}, **default)


@dataclass(frozen=True)
class ImageSettings:
    """The slices that a network sees."""

    size: int = setting(COUNT)  # side of the stored slices in pixels
    pixel_scale: float = setting(POSITIVE)  # pixel size relative to the anatomy's in-plane spacing
    view_size: int = setting(COUNT)  # side of the augmented views that pre-training sees
    windows: bool = setting(YES_OR_NO, default=False)  # networks that segment learn from what inference shows them

    def spacing(self, anatomy: Anatomy) -> float:
        """In-plane pixel size of the stored slices in mm."""
        return anatomy.spacing_mm * self.pixel_scale


@dataclass(frozen=True)
class NetworkSettings:
    """Widths of the U-Net and of the heads."""

    channels: tuple[int, ...] = setting(WIDTHS)  # encoder widths, one per level; the last is the feature size
    hidden: int = setting(COUNT)  # hidden width of projector and predictor
    patch: int = setting(COUNT, default=1)  # pixels per side that the first level takes together

    @property
    def feature_size(self) -> int:
        return self.channels[-1]


@dataclass(frozen=True)
class PretrainingSettings:
    """Rounds, local training and the paper's constants. Defaults are the paper's values."""

    rounds: int = setting(COUNT)
    local_epochs: int = setting(COUNT)
    batch_size: int = setting(BATCH)
    bank_size: int = setting(COUNT)  # K
    optimizer: str = setting(_one_of("sgd", "adam", "adamw"), default="sgd")
    lr: float | None = setting(_optional(POSITIVE), default=None)  # None: the method's own rate for this optimiser
    sgd_momentum: float = setting(_number(lambda value: 0 <= value < 1, "a number >= 0 and < 1"), default=0.9)
    weight_decay: float = setting(NOT_NEGATIVE, default=1e-4)
    structural_positives: float = setting(SHARE, default=0.0)  # fraction of positives from another volume (BYOL, MoCo)
    temperature: float = setting(POSITIVE, default=0.1)
    ema_momentum: float = setting(SHARE, default=0.99)  # m, Eq. (byol_ema)
    ptnu_momentum: float = setting(
        _number(lambda value: 0 < value < 1, "a number between 0 and 1"), default=0.995
    )  # m_d
    calibration_rounds: int = setting(COUNT, default=10)  # R: alpha is adjusted every R rounds
    phantom_patients: int = setting(COUNT, default=200)  # for methods that train on phantoms
    bank_views: int = setting(_whole(0), default=0)  # views per slice in a refilled bank; 0: as many as needed
    bfloat16: bool = setting(YES_OR_NO, default=False)  # mixed precision on CPUs that support it; GPUs always use it
    epoch_share: float = setting(SOME, default=1.0)  # of a site's slices, drawn at random, in each local epoch
    adaptation_rounds: int = setting(COUNT, default=20)  # for jobs that start from a network that already segments


@dataclass(frozen=True)
class FinetuningSettings:
    """Supervised training with few labelled patients. Defaults are the paper's values."""

    epochs: int = setting(COUNT, default=200)
    steps: int | None = setting(_optional(COUNT), default=None)  # at most this many optimiser steps,
    fewest_epochs: int = setting(COUNT, default=20)  # but not fewer epochs than this
    rounds: int = setting(COUNT, default=200)  # rounds of federated fine-tuning; the epochs are divided among them
    batch_size: int = setting(COUNT, default=10)
    lr: float = setting(POSITIVE, default=5e-4)
    encoder_lr_factor: float = setting(NOT_NEGATIVE, default=1.0)
    frozen_epochs: int = setting(_whole(0), default=0)
    model_lr: float = setting(POSITIVE, default=5e-4)  # rate and steps from a network that already segments: a high
    model_steps: int = setting(COUNT, default=120)  # rate or a long training forgets more than one patient can teach
    model_fewest_epochs: int = setting(COUNT, default=50)
    start_share: float = setting(SHARE, default=0.0)  # of the network that it starts from, in the final weights
    model_start_share: float = setting(SHARE, default=0.5)  # the same, from a network that already segments
    unlabelled_weight: float = setting(NOT_NEGATIVE, default=0.0)  # of a mean teacher on patients without labels
    refined: bool = setting(YES_OR_NO, default=False)  # scores of a study: averaged over rotations, and cleaned

    def epochs_for(self, steps_per_epoch: int) -> int:
        """``epochs``, reduced to stay within ``steps`` but not below ``fewest_epochs``."""
        if self.steps is None:
            return self.epochs
        return min(self.epochs, max(self.fewest_epochs, self.steps // steps_per_epoch))

    def share_for(self, steps_per_epoch: int) -> float:
        """``start_share`` for one labelled patient, less for more: they know more than the start."""
        return self.start_share * min(1.0, math.sqrt(STEPS_OF_A_PATIENT / steps_per_epoch))


@dataclass(frozen=True)
class Preset:
    """One size in which everything can run."""

    name: str
    images: ImageSettings
    networks: NetworkSettings
    pretraining: PretrainingSettings
    finetuning: FinetuningSettings = field(default_factory=FinetuningSettings)

    def changed(self, changes: Mapping[str, object]) -> "Preset":
        """A copy with some settings replaced; ``full_name`` says how they may be named."""
        by_group: dict[str, dict[str, object]] = {}
        for given, value in changes.items():
            group, _, name = full_name(given).partition(".")
            accepts: Accepts = _fields(group)[name].metadata["accepts"]
            if not accepts.test(value):
                raise FCLSegError(f"the preset's '{given}' cannot be {value!r}: give {accepts.wanted}")
            by_group.setdefault(group, {})[name] = value
        groups = {group: _replaced(getattr(self, group), values) for group, values in by_group.items()}
        return replace(self, **groups)

    def values(self) -> dict[str, object]:
        """Every setting by its full name."""
        return {name: getattr(getattr(self, name.partition(".")[0]), name.partition(".")[2]) for name in SETTINGS}

    def from_model(self) -> "Preset":
        """The preset for fine-tuning that starts from any network that already segments."""
        return self.changed(self.model_finetuning())

    def model_finetuning(self) -> dict[str, object]:
        """Changes for such a fine-tuning."""
        own = self.finetuning
        return {
            "finetuning.lr": own.model_lr,
            "finetuning.steps": own.model_steps,
            "finetuning.fewest_epochs": own.model_fewest_epochs,
            "finetuning.start_share": own.model_start_share,
        }

    def adaptation(self) -> dict[str, object]:
        """Changes for a job that starts from such a network."""
        return {"pretraining.rounds": self.pretraining.adaptation_rounds}

    def federated_finetuning(self, steps_per_epoch: int) -> dict[str, object]:
        """Changes for federated fine-tuning: as many steps per site as in local fine-tuning."""
        epochs = self.finetuning.epochs_for(steps_per_epoch)
        rounds = min(self.finetuning.rounds, epochs)
        return {
            "pretraining.rounds": rounds,
            "pretraining.local_epochs": round(epochs / rounds),
            "pretraining.batch_size": self.finetuning.batch_size,
        }


GROUPS: dict[str, type] = {
    "images": ImageSettings,
    "networks": NetworkSettings,
    "pretraining": PretrainingSettings,
    "finetuning": FinetuningSettings,
}

SETTINGS = tuple(f"{group}.{one.name}" for group, kind in GROUPS.items() for one in fields(kind))
"""The full names of all settings."""

SHORT = {"rounds": "pretraining.rounds", "batch_size": "pretraining.batch_size"}
"""Fields of two groups whose short name means that of pre-training."""


def full_name(given: str) -> str:
    """``group.field`` for a full name, for its form as a Python keyword (``group_field``), or for a field alone if only
    one group has it."""
    if given in SHORT:
        return SHORT[given]
    found = [name for name in SETTINGS if given in (name, name.replace(".", "_", 1), name.partition(".")[2])]
    if len(found) != 1:
        raise FCLSegError(f"a preset has no setting '{given}': choose from {', '.join(SETTINGS)}")
    return found[0]


_Group = TypeVar("_Group")


def _replaced(group: _Group, values: dict[str, object]) -> _Group:
    return replace(group, **values)  # type: ignore[type-var]


def _fields(group: str) -> dict[str, Any]:
    return {one.name: one for one in fields(GROUPS[group])}
