"""Federated supervised training equals the bundle's training: loss, learning rates and frozen encoder."""

from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch

from fclseg.finetune.network import parameter_groups
from fclseg.finetune.train import FinetuneSpec, training_config
from fclseg.methods.registry import build_method
from fclseg.methods.training import make_optimizer, train_round
from fclseg.presets import get_preset
from fclseg.randomness import generator

JOB = "finetune_federated"


def preset(**changes):
    return get_preset("demo", optimizer="adamw", weight_decay=0.0, finetuning_lr=0.01, **changes)


def train(method, sampler, round_number=0):
    optimizer = make_optimizer(method)
    return train_round(method, sampler, optimizer, lr=0.01, epochs=1, seed=0, site="site-1", round_number=round_number)


def test_loss_is_the_bundles():
    loss = training_config(FinetuneSpec(".", ("a",), ("b",), preset="demo"), None, False).get_parsed_content("loss")
    scores, labels = torch.randn(3, 4, 8, 8), torch.randint(0, 4, (3, 1, 8, 8))
    assert torch.equal(build_method(JOB, preset(), 0).criterion(scores, labels), loss(scores, labels))


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_a_step_equals_adam_with_its_own_rate_for_the_encoder(factor, make_sampler):
    method = build_method(JOB, preset(encoder_lr_factor=factor), 0)
    oracle = deepcopy(method)
    batch = next(iter(make_sampler(method).epoch(generator(0))))
    ours = make_optimizer(method)
    theirs = torch.optim.Adam(parameter_groups(oracle.online, 0.01, factor))
    for one, optimizer in ((method, ours), (oracle, theirs)):
        one.train()
        one.loss(batch, generator(1)).backward()
        optimizer.step()
    method.after_step()
    for name, value in method.online.named_parameters():
        if not name.endswith("conv.bias"):  # BatchNorm undoes it: its gradient is rounding noise, which Adam enlarges
            torch.testing.assert_close(value, oracle.online.get_parameter(name), rtol=1e-4, atol=1e-6)


def test_frozen_rounds_leave_every_tensor_of_the_encoder_alone(make_sampler):
    method = build_method(JOB, preset(frozen_epochs=2), 0)
    sampler = make_sampler(method)
    train(method, sampler, 0)  # gives a random encoder its BatchNorm statistics
    encoder = deepcopy(method.online.encoder.state_dict())
    decoder = deepcopy(method.online.decoder.state_dict())
    train(method, sampler, 1)
    assert all(torch.equal(value, encoder[name]) for name, value in method.online.encoder.state_dict().items())
    assert not torch.equal(method.online.decoder.head.weight, decoder["head.weight"])
    train(method, sampler, 2)
    assert not torch.equal(method.online.encoder.stem.conv_0.conv.weight, encoder["stem.conv_0.conv.weight"])


def test_training_lowers_the_loss(make_sampler):
    method = build_method(JOB, preset(), 0)
    sampler = make_sampler(method)
    losses = [train(method, sampler, number).loss for number in range(4)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("slices", "epochs"), [(10, 24), (20, 12), (30, 8), (80, 6), (400, 6)])
def test_a_site_with_more_labels_trains_fewer_epochs(slices, epochs):
    """240 steps in 10 rounds, but at least 60 epochs: by hand."""
    changes = {"finetuning.steps": 240, "finetuning.fewest_epochs": 60, "finetuning.epochs": 400, "local_epochs": 24}
    method = build_method(JOB, get_preset("demo", **{**changes, "rounds": 10, "batch_size": 10}), 0)
    assert method.local_epochs(SimpleNamespace(steps_per_epoch=slices // 10)) == epochs


def test_without_a_limit_of_steps_every_site_trains_as_the_job_says():
    assert build_method(JOB, preset(local_epochs=7), 0).local_epochs(SimpleNamespace(steps_per_epoch=50)) == 7
