"""The network that a fine-tuning starts from has a share in the final weights."""

from dataclasses import replace

import pytest
import torch

from fclseg.finetune.network import settings_for
from fclseg.finetune.train import FinetuneSpec, training_config
from fclseg.networks.loading import read_tensors
from fclseg.networks.model_file import MODEL
from fclseg.presets import get_preset
from fclseg.resources import shipped_model
from fclseg.study.fixed_training import train_fixed

SHIPPED = shipped_model("acdc_unet", "demo")


@pytest.fixture(scope="module")
def trained(phantom, tmp_path_factory):
    """Fine-tune from the shipped weights for one epoch; the tensors of the result by share."""

    def tensors(share):
        out = tmp_path_factory.mktemp("out")
        changes = {"epochs": 1, "start_share": share}
        spec = FinetuneSpec(phantom, ("patient001",), (), preset="demo", pretrained_network=SHIPPED, overrides=changes)
        train_fixed(spec, out)
        return read_tensors(out / MODEL)[0]

    return {share: tensors(share) for share in (0.0, 0.25, 1.0)}


def test_the_result_lies_between_start_and_end_of_the_training(trained):
    """Weights and BatchNorm statistics, each by the same share."""
    start, _ = read_tensors(SHIPPED)
    moved = 0
    for name, end in trained[0.0].items():
        if end.is_floating_point():
            torch.testing.assert_close(trained[0.25][name], 0.25 * start[name] + 0.75 * end)
            torch.testing.assert_close(trained[1.0][name], start[name])
            moved += not torch.equal(end, start[name])
    assert moved > 40


def test_only_networks_that_segment_have_one_by_default():
    assert settings_for(get_preset("small"), str(SHIPPED)).finetuning.start_share == 0.5
    assert settings_for(get_preset("small"), None).finetuning.start_share == 0.0


def test_more_labelled_patients_train_longer_and_leave_the_start_less():
    """By hand: two steps see a patient once; four patients take 60 epochs of 8 steps and leave 0.5 / sqrt(4)."""
    settings = settings_for(get_preset("standard"), str(SHIPPED)).finetuning
    assert [settings.epochs_for(steps) for steps in (2, 8, 60)] == [120, 60, 60]
    assert [settings.share_for(steps) for steps in (1, 2, 8, 32)] == pytest.approx([0.5, 0.5, 0.25, 0.125])


def test_the_bundle_leaves_the_start_less_if_there_are_more_slices(phantom):
    spec = FinetuneSpec(phantom, ("patient001",), (), preset="small", pretrained_network=SHIPPED)
    spec = replace(spec, overrides={"batch_size": 1})  # as many steps as slices: those of many patients
    config = training_config(spec, None, progress=False)
    steps = config.get_parsed_content("steps_per_epoch")
    assert steps > 8 and config.get_parsed_content("start_share") == pytest.approx(0.5 * (2 / steps) ** 0.5)


def test_random_weights_have_no_share(phantom):
    changes = {"epochs": 1, "start_share": 0.5}
    result = train_fixed(FinetuneSpec(phantom, ("patient001",), (), preset="demo", overrides=changes))
    plain = train_fixed(FinetuneSpec(phantom, ("patient001",), (), preset="demo", overrides={"epochs": 1}))
    assert result.losses == plain.losses
    ours, expected = (one.evaluator.network.state_dict() for one in (result, plain))
    assert all(torch.equal(ours[name], tensor) for name, tensor in expected.items())
