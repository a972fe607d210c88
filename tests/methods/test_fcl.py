"""FCL's loss against the paper's formulas query by query, and what the switches of the ablation do."""

import math
from itertools import product

import pytest
import torch
from torch.nn import functional

from fclseg.data.sampler import Batch
from fclseg.methods.fcl import FCL, fcl_loss
from fclseg.presets import get_preset

PRESET = get_preset("demo", bank_size=24)


def unit(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return functional.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)


def slow_loss(queries, keys, partitions, bank, bank_partitions, temperature, sample, gsm, mask_same_partition):
    """Eq. (loss_memorybank) and Eq. (gsm), one exponential at a time."""

    def loss_of(q, positives, negatives):
        background = sum(math.exp(q @ n / temperature) for n in negatives)
        return -sum(
            math.log(math.exp(q @ k / temperature) / (math.exp(q @ k / temperature) + background)) for k in positives
        ) / len(positives)

    total = 0.0
    for row, q in enumerate(queries):
        drawn = range(len(bank)) if sample is None else sample[row].tolist()
        matching = [bank[i] for i in drawn if bank_partitions[i] == partitions[row]]
        others = [bank[i] for i in drawn if bank_partitions[i] != partitions[row]]
        negatives = others if mask_same_partition else [bank[i] for i in drawn]
        total += loss_of(q, keys[row], negatives)
        if gsm and matching:
            total += loss_of(q, matching, negatives)
    return total / len(queries)


@pytest.mark.parametrize(
    "gsm, mask, drawn, temperature", list(product([False, True], [False, True], [None, 5], [0.1, 1.0]))
)
@pytest.mark.parametrize("count, size", [(1, 6), (4, 6), (6, 40)])
def test_loss_equals_the_paper(gsm, mask, drawn, temperature, count, size):
    queries, keys, bank = unit(count, 8, seed=1), unit(count, 2, 8, seed=2), unit(size, 8, seed=3)
    generator = torch.Generator().manual_seed(size)
    partitions = torch.randint(4, (count,), generator=generator)
    bank_partitions = torch.randint(4, (size,), generator=generator).to(torch.uint8)
    sample = None
    if drawn:
        sample = torch.stack([torch.randperm(size, generator=generator)[:drawn] for _ in range(count)])
    switches = {"temperature": temperature, "sample": sample, "gsm": gsm, "mask_same_partition": mask}
    value = fcl_loss(queries, keys, partitions, bank, bank_partitions, **switches)
    assert value.item() == pytest.approx(slow_loss(queries, keys, partitions, bank, bank_partitions, **switches))


def test_no_match_in_the_bank_adds_nothing():
    arguments = unit(3, 8, seed=1), unit(3, 2, 8, seed=2), torch.zeros(3), unit(5, 8, seed=3), torch.ones(5)
    with_gsm, without = (fcl_loss(*arguments, temperature=0.1, gsm=gsm) for gsm in (True, False))
    assert with_gsm == without


def ready(seed=0, sites=3, **switches):
    """An FCL method with a full bank and the banks of other sites."""
    torch.manual_seed(seed)
    method = FCL(PRESET, **switches)
    size, features = PRESET.pretraining.bank_size, PRESET.networks.feature_size
    banks = [(torch.randn(size, features), torch.arange(size) % 4) for _ in range(sites)]
    method.bank.push(*banks[0])
    states = {f"site-{k}": {"features": f, "partitions": p} for k, (f, p) in enumerate(banks[1:], start=2)}
    method.receive_others("bank", states)
    return method


def batch(count=6, seed=0):
    images = torch.rand(
        2, count, 1, PRESET.images.size, PRESET.images.size, generator=torch.Generator().manual_seed(seed)
    )
    return Batch(images[0], torch.arange(count) % 4, partners=images[1])


def test_feature_exchange_decides_which_banks_are_compared_with():
    for fe, banks in ((False, 1), (True, 3)):
        features, partitions = ready(fe=fe).aggregated_bank()
        assert len(features) == len(partitions) == banks * PRESET.pretraining.bank_size
    own, everything = ready(fe=False).aggregated_bank()[0], ready().aggregated_bank()[0]
    assert torch.equal(everything[: len(own)], own)


def test_image_and_partner_share_their_positives():
    """P(q_i) = P(q_j) = {k_i+, k_j+}: the loss equals the oracle's on the method's own queries and keys."""
    method = ready(fe=False, ns=False, gsm=False)
    one = batch()
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    value = method.loss(one, generators[0])
    images = torch.cat([one.images, one.partners])
    queries = method.queries(images, generators[1]).double().detach()
    keys = method.keys(images, generators[1]).double()
    count = len(one.images)
    pairs = [[keys[row % count], keys[row % count + count]] for row in range(2 * count)]
    bank, ids = method.bank.entries()
    expected = slow_loss(queries, pairs, one.partitions.repeat(2), bank.double(), ids, 0.1, None, False, False)
    assert value.item() == pytest.approx(expected, rel=1e-5)
    assert (keys @ keys.T).min() < 0.5  # the features differ enough for a wrong pairing to show


def test_enqueued_are_the_keys_of_images_and_partners():
    method = ready()
    pointer = int(method.bank.pointer)
    one = batch(count=6)
    method.loss(one, torch.Generator().manual_seed(0))
    keys, _ = method._fresh
    method.after_step()
    places = (pointer + torch.arange(12)) % PRESET.pretraining.bank_size
    torch.testing.assert_close(method.bank.features[places], keys)
    assert method.bank.partitions[places].tolist() == one.partitions.repeat(2).tolist()


def test_what_leaves_the_site_has_no_bookkeeping():
    shared = ready().send("bank")
    assert sorted(shared) == ["features", "partitions"]
    assert shared["features"].shape == (PRESET.pretraining.bank_size, PRESET.networks.feature_size)
    assert shared["partitions"].dtype == torch.uint8


@pytest.mark.parametrize(
    "switches",
    [{}, {"ns": False}, {"gsm": False}, {"fe": False}, {"mask_same_partition": True}, {"ns": False, "gsm": False}],
    ids=str,
)
def test_every_switch_changes_the_loss_to_what_the_paper_says(switches):
    """Query by query: K entries of the aggregated Q with negative sampling, else all of it."""
    method, one = ready(**switches), batch()
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    value = method.loss(one, generators[0]).item()
    images, count, size = torch.cat([one.images, one.partners]), len(one.images), PRESET.pretraining.bank_size
    queries = method.queries(images, generators[1]).double().detach()
    keys = method.keys(images, generators[1]).double()
    pairs = [[keys[row % count], keys[row % count + count]] for row in range(2 * count)]
    banks = [method.bank, method.remote] if method.fe else [method.bank]
    bank, ids = torch.cat([b.features for b in banks]).double(), torch.cat([b.partitions for b in banks])
    assert len(bank) == (3 * size if method.fe else size)
    sample = None
    if method.ns and method.fe:
        sample = torch.stack([torch.randperm(3 * size, generator=generators[1])[:size] for _ in range(2 * count)])
    switched = sample, method.gsm, method.mask_same_partition
    expected = slow_loss(queries, pairs, one.partitions.repeat(2), bank, ids, PRESET.pretraining.temperature, *switched)
    assert value == pytest.approx(expected, rel=1e-5)
    assert torch.equal(*(generator.get_state() for generator in generators))  # nothing else was drawn
    if switches:
        assert value != pytest.approx(ready().loss(one, torch.Generator().manual_seed(3)).item(), rel=1e-4)
