"""The table of presets and what is derived from it."""

import pytest

from fclseg.errors import FCLSegError
from fclseg.presets import PRESETS, get_preset


@pytest.mark.parametrize("name", PRESETS)
def test_images_and_views_survive_every_pooling(name):
    preset = get_preset(name)
    poolings = 2 ** (len(preset.channels) - 1)
    assert preset.image_size % poolings == 0 and preset.view_size % poolings == 0


@pytest.mark.parametrize(
    ("steps", "per_epoch", "expected"), [(None, 8, 200), (400, 1, 200), (400, 2, 200), (400, 8, 50), (400, 500, 20)]
)
def test_epochs_of_finetuning_end_at_the_steps_allowed(steps, per_epoch, expected):
    preset = get_preset("paper", finetune_epochs=200, finetune_steps=steps)
    assert preset.epochs_of_finetuning(per_epoch) == expected


def test_unknown_names_are_one_sentence():
    with pytest.raises(FCLSegError, match=r"no preset .large.*demo, small, paper"):
        get_preset("large")
    with pytest.raises(FCLSegError, match="no setting 'epochs'"):
        get_preset("demo", epochs=3)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("batch_size", "many"), ("batch_size", 0), ("rounds", 2.5), ("lr_byol", "fast"), ("lr_byol", float("nan")),
     ("channels", 8), ("channels", (8, 0)), ("optimizer", 3), ("finetune_steps", "all"), ("frozen_epochs", -1)],
)  # fmt: skip
def test_values_of_the_wrong_kind_are_one_sentence(setting, value):
    with pytest.raises(FCLSegError, match=f"'{setting}' cannot be"):
        get_preset("demo", **{setting: value})


def test_values_of_the_right_kind_are_taken():
    preset = get_preset("demo", lr_byol=1, channels=(4, 8), finetune_steps=None, frozen_epochs=0, optimizer="adamw")
    assert preset.channels == (4, 8) and preset.lr_byol == 1
