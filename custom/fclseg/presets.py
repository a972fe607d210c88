"""The three sizes in which everything can run, as one table.

``paper`` follows the paper's settings, ``small`` is what two CPU cores train in minutes, and ``demo`` is for a first
look and for tests. Anything that is not listed per preset is the paper's value and the same for all.
"""

import math
from dataclasses import dataclass, fields, replace

from fclseg.errors import FCLSegError

SPACING_MM = {"acdc": 1.25, "hvsmr": 0.7, "nifti": 1.25}
"""In-plane pixel size of the paper, by data layout; a preset multiplies it by ``pixel_scale``."""

FEWEST_EPOCHS = 20
"""``finetune_steps`` equalises budgets with few labels; with many, every slice is still seen so often."""

PARTITIONS = 4
"""S: the number of ordered partitions of a volume along its slice axis."""

OPTIMIZERS = ("sgd", "adam", "adamw")
"""What ``optimizer`` may be; ``methods/training.py`` builds them."""


@dataclass(frozen=True)
class Preset:
    name: str
    # images
    image_size: int  # side of the stored slices in pixels
    pixel_scale: float  # pixel size relative to SPACING_MM
    view_size: int  # side of the augmented views the encoder sees in pre-training
    # networks
    channels: tuple[int, ...]  # encoder widths, one per level; the last is the feature size
    hidden: int  # hidden width of projector and predictor
    # pre-training
    rounds: int
    local_epochs: int
    batch_size: int
    bank_size: int  # K
    lr_moco: float = 0.05
    lr_byol: float = 0.5
    optimizer: str = "sgd"  # one of OPTIMIZERS; adamw's learning rates are some hundred times smaller
    sgd_momentum: float = 0.9
    weight_decay: float = 1e-4
    structural_positives: float = 0.0  # share of BYOL's and MoCo's positives that come from another volume
    temperature: float = 0.1
    ema_momentum: float = 0.99  # m, Eq. (byol_ema)
    ptnu_momentum: float = 0.995  # m_d, Algorithm 2
    calibration_rounds: int = 10  # R: alpha is adjusted every R rounds
    # fine-tuning
    finetune_epochs: int = 200
    finetune_steps: int | None = None  # at most so many, so that eight patients need not cost eight times one patient
    finetune_rounds: int = 200  # of federated fine-tuning, which divides its epochs among them
    finetune_batch: int = 10
    finetune_lr: float = 5e-4
    encoder_lr_factor: float = 1.0
    frozen_epochs: int = 0

    @property
    def feature_size(self) -> int:
        return self.channels[-1]

    def epochs_of_finetuning(self, steps_per_epoch: int) -> int:
        """``finetune_epochs``, or fewer where they would take more than ``finetune_steps``, but not too few of them."""
        if self.finetune_steps is None:
            return self.finetune_epochs
        return min(self.finetune_epochs, max(FEWEST_EPOCHS, self.finetune_steps // steps_per_epoch))

    def federated_finetuning(self, steps_per_epoch: int) -> dict[str, int]:
        """Fine-tuning where a federated run looks for its own settings: as many steps a site as fine-tuning in one
        place takes, divided among ``finetune_rounds``."""
        epochs = self.epochs_of_finetuning(steps_per_epoch)
        rounds = min(self.finetune_rounds, epochs)
        return {"rounds": rounds, "local_epochs": round(epochs / rounds), "batch_size": self.finetune_batch}

    def spacing(self, layout: str) -> float:
        return SPACING_MM[layout] * self.pixel_scale


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="demo",
            image_size=48,
            pixel_scale=3.0,
            view_size=32,
            channels=(8, 16, 32, 64),
            hidden=128,
            rounds=4,
            local_epochs=1,
            batch_size=16,
            bank_size=128,
            lr_moco=1e-3,
            lr_byol=1e-3,
            optimizer="adamw",
            structural_positives=0.5,
            calibration_rounds=2,
            finetune_epochs=30,
            finetune_lr=2e-3,  # narrow networks do not converge at the paper's 5e-4
        ),
        Preset(
            name="small",
            image_size=64,
            pixel_scale=2.4,  # 192 mm: at 160 mm one volume in seven lost more than 5 % of its heart
            view_size=48,
            channels=(8, 16, 32, 64),
            hidden=256,
            rounds=40,
            local_epochs=5,
            batch_size=16,
            bank_size=512,
            lr_moco=1e-3,
            lr_byol=1e-3,
            optimizer="adamw",  # with strong views and structural positives: docs/results.md says what it was chosen by
            structural_positives=0.5,
            finetune_lr=4e-3,
            finetune_epochs=400,
            finetune_steps=300,
            finetune_rounds=10,
        ),
        Preset(
            name="paper",
            image_size=192,
            pixel_scale=1.0,
            view_size=192,
            channels=(48, 96, 192, 384),
            hidden=2048,
            rounds=200,
            local_epochs=1,
            batch_size=32,
            bank_size=4096,
        ),
    )
}


def get_preset(name: str, /, **changes: object) -> Preset:
    """The named preset, with single values changed by keyword."""
    if name not in PRESETS:
        raise FCLSegError(f"there is no preset '{name}': choose one of {', '.join(PRESETS)}")
    known = {field.name for field in fields(Preset)} - {"name"}
    if unknown := sorted(set(changes) - known):
        raise FCLSegError(f"preset '{name}' has no setting '{unknown[0]}': it has {', '.join(sorted(known))}")
    for setting, value in changes.items():
        _check(setting, value)
    return replace(PRESETS[name], **changes)


SMALLEST = {"frozen_epochs": 0, "batch_size": 2}
"""Of whole numbers, where it is not 1; BatchNorm has no variance over one image."""

POSITIVE = (lambda value: 0 < value < math.inf, "a number above 0")
BOUNDS = {
    "pixel_scale": POSITIVE,
    "lr_moco": POSITIVE,
    "lr_byol": POSITIVE,
    "finetune_lr": POSITIVE,
    "temperature": POSITIVE,
    "structural_positives": (lambda value: 0 <= value <= 1, "a share from 0 to 1"),
    "sgd_momentum": (lambda value: 0 <= value < 1, "a number from 0 on that is below 1"),
    "ema_momentum": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    "ptnu_momentum": (lambda value: 0 < value < 1, "a number between 0 and 1"),
}
"""Of other numbers, where not everything from 0 on makes sense: the test and what it wants."""
NOT_NEGATIVE = (lambda value: 0 <= value < math.inf, "a number from 0 on")


def _check(setting: str, value: object) -> None:
    """Refuse a value that would otherwise fail deep inside a training, or silently mean another one."""
    kind = Preset.__annotations__[setting]
    if value is None and kind == int | None:
        return
    if kind is str:
        fits, wanted = value in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}"
    elif kind is float:
        inside, wanted = BOUNDS.get(setting, NOT_NEGATIVE)
        fits = type(value) in (int, float) and inside(value)
    elif kind == tuple[int, ...]:
        fits = isinstance(value, tuple) and len(value) > 1 and all(type(part) is int and part > 0 for part in value)
        wanted = "whole numbers, for example 8,16,32"
    else:
        smallest = SMALLEST.get(setting, 1)
        fits, wanted = type(value) is int and value >= smallest, f"a whole number from {smallest} on"
    if not fits:
        raise FCLSegError(f"the preset's '{setting}' cannot be {value!r}: give {wanted}")
