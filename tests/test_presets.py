"""The table of presets and what is derived from it."""

from dataclasses import fields

import pytest

from fclseg.errors import FCLSegError
from fclseg.presets import PRESETS, Preset, get_preset


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
    with pytest.raises(FCLSegError, match="no setting 'name'"):
        get_preset("demo", name="mine")  # --set name=mine


@pytest.mark.parametrize(
    ("setting", "value"),
    [("batch_size", "many"), ("batch_size", 0), ("rounds", 2.5), ("lr_byol", "fast"), ("lr_byol", float("nan")),
     ("channels", 8), ("channels", (8, 0)), ("optimizer", 3), ("finetune_steps", "all"), ("frozen_epochs", -1)],
)  # fmt: skip
def test_values_of_the_wrong_kind_are_one_sentence(setting, value):
    with pytest.raises(FCLSegError, match=f"'{setting}' cannot be"):
        get_preset("demo", **{setting: value})


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [("structural_positives", 7, "from 0 to 1"), ("structural_positives", -0.1, "from 0 to 1"),
     ("ema_momentum", -0.1, "from 0 to 1"), ("ema_momentum", 1.5, "from 0 to 1"), ("sgd_momentum", 1.0, "below 1"),
     ("ptnu_momentum", 0, "between 0 and 1"), ("ptnu_momentum", 1, "between 0 and 1"),
     ("temperature", 0, "above 0"), ("pixel_scale", 0.0, "above 0"), ("lr_moco", 0, "above 0"),
     ("lr_byol", 0, "above 0"), ("finetune_lr", float("inf"), "above 0"), ("weight_decay", -1, "from 0 on"),
     ("batch_size", 1, "from 2 on"), ("optimizer", "lamb", "one of sgd, adam, adamw")],
)  # fmt: skip
def test_values_that_no_training_can_use_are_one_sentence(setting, value, wanted):
    with pytest.raises(FCLSegError, match=f"'{setting}' cannot be {value!r}: give .*{wanted}"):
        get_preset("demo", **{setting: value})


@pytest.mark.parametrize(
    ("setting", "value"),
    [("structural_positives", 0), ("structural_positives", 1), ("ema_momentum", 0), ("sgd_momentum", 0),
     ("ptnu_momentum", 0.5), ("weight_decay", 0), ("batch_size", 2), ("finetune_batch", 1)],
)  # fmt: skip
def test_bounds_themselves_are_taken_where_they_make_sense(setting, value):
    assert getattr(get_preset("demo", **{setting: value}), setting) == value


@pytest.mark.parametrize("name", PRESETS)
def test_presets_keep_their_own_rules(name):
    values = {field.name: getattr(PRESETS[name], field.name) for field in fields(Preset) if field.name != "name"}
    assert get_preset(name, **values) == PRESETS[name]


def test_values_of_the_right_kind_are_taken():
    preset = get_preset("demo", lr_byol=1, channels=(4, 8), finetune_steps=None, frozen_epochs=0, optimizer="adamw")
    assert preset.channels == (4, 8) and preset.lr_byol == 1
