"""MoCo's loss, its bank before the first step, and the moving target."""

import pytest
import torch

from fclseg.data.sampler import Batch
from fclseg.errors import FCLSegError
from fclseg.methods.fcl import FCL
from fclseg.methods.infonce import contrastive_loss
from fclseg.methods.moco import MoCo
from fclseg.presets import get_preset

PRESET = get_preset("demo", bank_size=40, structural_positives=0.0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_loss_is_infonce_with_the_other_view_and_the_bank(make_sampler):
    method = MoCo(PRESET)
    method.begin_round(make_sampler(method), 0, generator())
    method.eval()
    images = torch.rand(5, 1, PRESET.images.size, PRESET.images.size, generator=generator())
    value = method.loss(Batch(images, torch.zeros(5, dtype=torch.int64)), generator(1))
    draws, expected = generator(1), 0.0
    queries, keys = method.queries(images, draws), method.keys(images, draws)
    for query, key in zip(queries, keys, strict=True):
        scores = (
            torch.stack([query @ key, *(query @ entry for entry in method.bank.features)])
            / PRESET.pretraining.temperature
        )
        expected -= scores.log_softmax(dim=0)[0].item() / 5
    assert value.item() == pytest.approx(expected, rel=1e-5)
    assert value.item() == pytest.approx(
        contrastive_loss((queries * keys).sum(1, keepdim=True) / 0.1, queries @ method.bank.features.T / 0.1)
        .mean()
        .item()
    )


@pytest.mark.parametrize("bank_size", [10, 40, 130])
def test_bank_is_full_of_own_unit_features_before_the_first_step(make_sampler, bank_size):
    """Also a bank that takes less than a batch or several epochs of the site's slices."""
    method = MoCo(get_preset("demo", bank_size=bank_size))
    method.begin_round(make_sampler(method), 0, generator())
    assert len(method.bank) == bank_size
    torch.testing.assert_close(method.bank.features.norm(dim=1), torch.ones(bank_size))
    assert set(method.bank.partitions.tolist()) <= {0, 1, 2, 3}
    assert len(method.bank.partitions.unique()) > 1


@pytest.mark.parametrize("refill", [False, True])
def test_refilling_each_round_is_a_setting(make_sampler, refill):
    method = MoCo(PRESET, refill_each_round=refill)
    sampler = make_sampler(method)
    method.begin_round(sampler, 0, generator())
    before = method.bank.features.clone()
    method.begin_round(sampler, 1, generator(1))
    assert torch.equal(method.bank.features, before) != refill


def test_target_follows_the_online_network_and_gets_no_gradient(make_sampler):
    method = MoCo(PRESET)
    sampler = make_sampler(method)
    method.begin_round(sampler, 0, generator())
    batch = next(iter(sampler.epoch(generator())))
    method.loss(batch, generator()).backward()
    assert all(parameter.grad is None for parameter in method.target.parameters())
    with torch.no_grad():
        for parameter in method.online.parameters():
            parameter.add_(1.0)
    weight = method.target.projector[0].weight.clone()
    method.after_step()
    expected = 0.99 * weight + 0.01 * method.online.projector[0].weight
    torch.testing.assert_close(method.target.projector[0].weight, expected)


@pytest.mark.parametrize("kind", [MoCo, FCL])
def test_an_empty_bank_is_refused_instead_of_a_loss_of_zero(kind):
    method = kind(PRESET)
    images = torch.rand(4, 1, PRESET.images.size, PRESET.images.size, generator=generator())
    batch = Batch(images, torch.arange(4), partners=images.flip(0))
    with pytest.raises(FCLSegError, match="the memory bank is empty"):
        method.loss(batch, generator())
    method.bank.push(torch.randn(1, PRESET.networks.feature_size, generator=generator()), torch.zeros(1))
    assert method.loss(batch, generator()).item() > 0
