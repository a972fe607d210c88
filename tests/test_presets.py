"""The table of presets and what is derived from it."""

import pytest

from fclseg.errors import FCLSegError
from fclseg.presets import PRESETS, SETTINGS, get_preset


@pytest.mark.parametrize("name", PRESETS)
def test_images_and_views_survive_every_pooling(name):
    preset = get_preset(name)
    poolings = 2 ** (len(preset.networks.channels) - 1)
    assert preset.images.size % poolings == 0 and preset.images.view_size % poolings == 0


@pytest.mark.parametrize(
    ("steps", "per_epoch", "expected"), [(None, 8, 200), (400, 1, 200), (400, 2, 200), (400, 8, 50), (400, 500, 20)]
)
def test_epochs_of_finetuning_end_at_the_steps_allowed(steps, per_epoch, expected):
    preset = get_preset("paper", **{"finetuning.epochs": 200, "finetuning.steps": steps})
    assert preset.finetuning.epochs_for(per_epoch) == expected


def test_unknown_names_are_one_sentence():
    with pytest.raises(FCLSegError, match=r"no preset .large.*demo, small, standard, paper"):
        get_preset("large")
    for name in ("epoch", "name", "images", "images.rounds", "finetuning."):
        with pytest.raises(
            FCLSegError, match=f"no setting '{name}': choose from images.size, .*, finetuning.frozen_epochs"
        ):
            get_preset("demo", **{name: 3})


def test_paper_preset_has_the_printed_values():
    """Section "Experimental setup" of the paper; m_d is given with PTNU."""
    printed = {
        "rounds": 200, "local_epochs": 1, "bank_size": 4096, "temperature": 0.1, "ema_momentum": 0.99,
        "optimizer": "sgd", "sgd_momentum": 0.9, "weight_decay": 0.0001, "batch_size": 32, "calibration_rounds": 10,
        "finetuning.epochs": 200, "finetuning.rounds": 200, "finetuning.batch_size": 10, "finetuning.lr": 0.0005,
    }  # fmt: skip
    assert get_preset("paper", **printed) == get_preset("paper")


@pytest.mark.parametrize(
    ("setting", "value"),
    [("batch_size", "many"), ("batch_size", 0), ("rounds", 2.5), ("pretraining.lr", "fast"),
     ("pretraining.lr", float("nan")), ("channels", 8), ("channels", (8, 0)), ("optimizer", 3),
     ("finetuning_steps", "all"), ("frozen_epochs", -1), ("finetuning.rounds", True)],
)  # fmt: skip
def test_values_of_the_wrong_kind_are_one_sentence(setting, value):
    with pytest.raises(FCLSegError, match=f"'{setting}' cannot be"):
        get_preset("demo", **{setting: value})


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [("structural_positives", 7, "from 0 to 1"), ("structural_positives", -0.1, "from 0 to 1"),
     ("ema_momentum", -0.1, "from 0 to 1"), ("ema_momentum", 1.5, "from 0 to 1"), ("sgd_momentum", 1.0, "< 1"),
     ("ptnu_momentum", 0, "between 0 and 1"), ("ptnu_momentum", 1, "between 0 and 1"),
     ("temperature", 0, "above 0"), ("pixel_scale", 0.0, "above 0"), ("pretraining.lr", 0, "above 0"),
     ("finetuning_lr", float("inf"), "above 0"), ("weight_decay", -1, "at least 0"),
     ("batch_size", 1, "at least 2"), ("optimizer", "lamb", "one of sgd, adam, adamw")],
)  # fmt: skip
def test_values_that_no_training_can_use_are_one_sentence(setting, value, wanted):
    with pytest.raises(FCLSegError, match=f"'{setting}' cannot be {value!r}: give .*{wanted}"):
        get_preset("demo", **{setting: value})


@pytest.mark.parametrize(
    ("setting", "full_name", "value"),
    [("structural_positives", "pretraining.structural_positives", 0), ("ema_momentum", "pretraining.ema_momentum", 0),
     ("sgd_momentum", "pretraining.sgd_momentum", 0), ("ptnu_momentum", "pretraining.ptnu_momentum", 0.5),
     ("weight_decay", "pretraining.weight_decay", 0), ("batch_size", "pretraining.batch_size", 2),
     ("rounds", "pretraining.rounds", 7), ("images_size", "images.size", 32), ("channels", "networks.channels", (4, 8)),
     ("finetuning_batch_size", "finetuning.batch_size", 1), ("finetuning_lr", "finetuning.lr", 1e-3),
     ("finetuning_epochs", "finetuning.epochs", 9), ("finetuning_steps", "finetuning.steps", None),
     ("finetuning_rounds", "finetuning.rounds", 3), ("frozen_epochs", "finetuning.frozen_epochs", 0)],
)  # fmt: skip
def test_short_names_change_the_setting_of_the_full_name_alone(setting, full_name, value):
    before, after = get_preset("small").values(), get_preset("small", **{setting: value}).values()
    assert after == before | {full_name: value}
    assert get_preset("small", **{full_name: value}).values() == after


@pytest.mark.parametrize("name", PRESETS)
def test_presets_keep_their_own_rules(name):
    values = PRESETS[name].values()
    assert tuple(values) == SETTINGS and get_preset(name, **values) == PRESETS[name]


@pytest.mark.parametrize("name", PRESETS)
def test_a_run_has_a_calibration_round_after_its_first(name):
    """Otherwise alpha stays at 1, and the distance is predicted without ever being corrected."""
    settings = get_preset(name).pretraining
    assert settings.calibration_rounds < settings.rounds
