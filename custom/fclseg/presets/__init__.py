"""The sizes in which everything can run, as one table.

``standard`` is what hospitals use, ``small`` is for research in minutes on two CPU cores, ``paper`` follows the paper's
settings, and ``demo`` is for a first look and for tests. Settings that a preset does not list have the paper's value
(``settings.py``).
"""

from dataclasses import replace

from fclseg.errors import FCLSegError
from fclseg.presets.settings import (
    SETTINGS,
    FinetuningSettings,
    ImageSettings,
    NetworkSettings,
    Preset,
    PretrainingSettings,
    full_name,
)

__all__ = ["PRESETS", "SETTINGS", "Preset", "full_name", "get_preset"]

OURS = PretrainingSettings(
    rounds=40,
    local_epochs=5,
    batch_size=16,
    bank_size=512,
    optimizer="adamw",
    structural_positives=0.5,
    adaptation_rounds=2,  # more steps did not raise Dice and started to drift
)
"""AdamW with strong views and structural positives: docs/results.md explains how they were chosen."""

PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="demo",
            images=ImageSettings(size=48, pixel_scale=3.0, view_size=32),
            networks=NetworkSettings(channels=(8, 16, 32, 64), hidden=128),
            pretraining=replace(
                OURS, rounds=4, local_epochs=1, bank_size=128, calibration_rounds=2, phantom_patients=6
            ),
            finetuning=FinetuningSettings(epochs=30, lr=2e-3),  # narrow networks do not converge at the paper's 5e-4
        ),
        Preset(
            name="small",
            # 192 mm: at 160 mm one volume in seven lost more than 5 % of its heart.
            images=ImageSettings(size=64, pixel_scale=2.4, view_size=48),
            networks=NetworkSettings(channels=(8, 16, 32, 64), hidden=256),
            pretraining=OURS,
            finetuning=FinetuningSettings(epochs=400, steps=300, rounds=10, lr=4e-3),
        ),
        Preset(
            name="standard",
            # 1.5 mm: a wall of 8 mm is five pixels wide. Patches of 2 x 2 pixels make a step three times as fast as a
            # U-Net of 16-32-64-128-256 channels on single ones.
            images=ImageSettings(size=128, pixel_scale=1.2, view_size=96, windows=True),
            networks=NetworkSettings(channels=(24, 48, 96, 192), hidden=512, patch=2),
            pretraining=OURS,
            finetuning=FinetuningSettings(
                epochs=400, steps=600, rounds=10, lr=2e-3, model_steps=240, model_fewest_epochs=60
            ),
        ),
        Preset(
            name="paper",
            images=ImageSettings(size=192, pixel_scale=1.0, view_size=192),
            networks=NetworkSettings(channels=(48, 96, 192, 384), hidden=2048),
            pretraining=PretrainingSettings(rounds=200, local_epochs=1, batch_size=32, bank_size=4096),
        ),
    )
}


def get_preset(name: str, /, **changes: object) -> Preset:
    """The preset of this name, with some settings changed by keyword."""
    if name not in PRESETS:
        raise FCLSegError(f"there is no preset '{name}': choose one of {', '.join(PRESETS)}")
    return PRESETS[name].changed(changes)
