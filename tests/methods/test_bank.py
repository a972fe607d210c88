"""The ring buffer against collections.deque, and banks of other sites."""

from collections import deque
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load, save
from torch.nn import functional

from fclseg.errors import FCLSegError
from fclseg.methods.bank import MemoryBank, RemoteBanks

SIZE, FEATURES = 7, 3


def unit(count, seed=0):
    return functional.normalize(torch.randn(count, FEATURES, generator=torch.Generator().manual_seed(seed)), dim=1)


def oldest_first(bank):
    features, partitions = bank.entries()
    shift = -int(bank.pointer) if len(bank) == bank.size else 0
    return features.roll(shift, 0), partitions.roll(shift, 0)


@pytest.mark.parametrize("batches", [[1], [7], [3, 3], [3, 3, 3], [4] * 7, [6, 2, 5], [8], [20, 1], [2, 15, 7, 14]])
def test_ring_buffer_is_a_deque(batches):
    bank, oracle = MemoryBank(SIZE, FEATURES), deque(maxlen=SIZE)
    for step, count in enumerate(batches):
        features = unit(count, step)
        partitions = torch.arange(count) % 4
        bank.push(features, partitions)
        oracle.extend(zip(features, partitions.tolist(), strict=True))
        stored, ids = oldest_first(bank)
        assert len(bank) == len(oracle)
        torch.testing.assert_close(stored, torch.stack([feature for feature, _ in oracle]))
        assert ids.tolist() == [partition for _, partition in oracle]


def test_features_have_unit_length():
    bank = MemoryBank(SIZE, FEATURES)
    bank.push(5 * unit(4), torch.zeros(4))
    torch.testing.assert_close(bank.entries()[0], unit(4))


def test_bank_continues_after_its_state_was_stored():
    """Stopped and resumed equals never stopped, through real bytes."""
    straight, stopped, resumed = (MemoryBank(SIZE, FEATURES) for _ in range(3))
    for bank in (straight, stopped):
        bank.push(unit(5), torch.arange(5))
    resumed.load_state_dict(load(save(stopped.state_dict())))
    for bank in (straight, resumed):
        bank.push(unit(4, 1), torch.arange(4))
    assert all(torch.equal(straight.state_dict()[name], value) for name, value in resumed.state_dict().items())


def shared(seed, count=SIZE):
    bank = MemoryBank(count, FEATURES)
    bank.push(unit(count, seed), torch.arange(count) % 4)
    return bank.shared()


def test_remote_banks_do_not_depend_on_the_order_of_answers():
    first, second = RemoteBanks(FEATURES), RemoteBanks(FEATURES)
    first.replace({"site-2": shared(2), "site-3": shared(3)})
    second.replace({"site-3": shared(3), "site-2": shared(2)})
    torch.testing.assert_close(first.features, torch.cat([unit(SIZE, 2), unit(SIZE, 3)]))
    assert torch.equal(first.features, second.features)
    assert torch.equal(first.partitions, second.partitions)


@pytest.mark.parametrize("sites", [0, 1, 3])
def test_remote_banks_restore_however_many_sites_there_were(sites):
    banks, restored = RemoteBanks(FEATURES), RemoteBanks(FEATURES)
    banks.replace({f"site-{k}": shared(k) for k in range(sites)})
    restored.replace({"site-9": shared(9)})
    restored.load_state_dict(load(save(banks.state_dict())))
    assert torch.equal(restored.features, banks.features)
    assert torch.equal(restored.partitions, banks.partitions)
    assert len(restored.features) == sites * SIZE


def test_each_exchange_replaces_the_last_and_undoes_what_a_filter_did_to_the_length():
    banks = RemoteBanks(FEATURES)
    banks.replace({"site-1": shared(1), "site-2": shared(2)})
    rounded = {"features": (3 * unit(4)).half(), "partitions": torch.zeros(4, dtype=torch.uint8)}
    banks.replace({"site-3": rounded})
    assert banks.features.shape == (4, FEATURES)
    torch.testing.assert_close(banks.features, unit(4), atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    "features", [torch.zeros(4, FEATURES + 1), torch.zeros(3, FEATURES), torch.full((4, FEATURES), torch.nan)]
)
def test_a_bank_that_does_not_fit_is_refused_by_name(features):
    with pytest.raises(FCLSegError, match="the bank of site-2 "):
        RemoteBanks(FEATURES).replace({"site-2": {"features": features, "partitions": torch.zeros(4)}})


class _Slices:
    """Batches of slices that are numbered from 0, in order."""

    def __init__(self, count, batch):
        self.count, self.batch, self.epochs = count, batch, 0

    def epoch(self, generator):
        self.epochs += 1
        for numbers in torch.arange(self.count).split(self.batch):
            yield SimpleNamespace(images=numbers, partitions=numbers % 4)


@pytest.mark.parametrize(
    ("count", "size", "views", "epochs", "expected"),
    [
        (3, 7, 0, 3, [1, 2, 0, 1, 2, 0, 1]),  # as many epochs as the bank needs; the last batch is one too many
        (3, 7, 1, 1, [0, 1, 2, 0, 1, 2, 0]),  # one epoch, whose features repeat
        (3, 7, 2, 2, [0, 1, 2, 0, 1, 2, 0]),
        (5, 7, 1, 1, [0, 1, 2, 3, 4, 0, 1]),
        (9, 7, 1, 1, [1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_a_bank_is_filled_with_at_most_so_many_views_of_a_slice(count, size, views, epochs, expected):
    bank, slices, encoded = MemoryBank(size, FEATURES), _Slices(count, batch=2), []
    features = unit(count)

    def encode(images, generator):
        encoded.extend(images.tolist())
        return features[images]

    bank.push(unit(4, seed=9), torch.zeros(4))  # of an earlier round, with the ring's pointer in the middle
    bank.fill(slices, encode, torch.Generator(), views)
    stored, partitions = oldest_first(bank)
    assert slices.epochs == epochs and (not views or max(map(encoded.count, encoded)) <= views)
    assert partitions.tolist() == [number % 4 for number in expected]
    torch.testing.assert_close(stored, features[expected])
