import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from fclseg.anatomy.folders import read_folder
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import open_store
from fclseg.device import computes_in_bfloat16
from fclseg.errors import FCLSegError
from fclseg.methods.registry import build_method
from fclseg.methods.training import (
    cosine_lr,
    feature_std,
    load_optimizer_state,
    make_optimizer,
    optimizer_state,
    train_round,
)
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset
from fclseg.randomness import generator

PRESET = get_preset("demo", channels=(4, 8), hidden=16, optimizer="sgd", structural_positives=0.0).changed(
    {"pretraining.lr": 0.05}
)


@pytest.fixture(scope="module")
def sampler(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    write_phantom(folder / "data", patients=2, frames=2)
    volumes = read_folder(folder / "data")
    store = open_store(volumes, image_size=48, spacing=3.75, cache=folder / "cache", progress=False)
    return SliceSampler(store, store.select(), batch_size=8)


def run_rounds(sampler, rounds, method=None, optimizer=None, preset=PRESET, seed=0, site="site-1"):
    method = method or build_method("fclopt", preset, seed)
    optimizer = optimizer or make_optimizer(method)
    results = [
        train_round(
            method, sampler, optimizer, lr=preset.pretraining.lr, epochs=1, seed=seed, site=site, round_number=number
        )
        for number in rounds
    ]
    return method, optimizer, results


def same_weights(one, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize("parts", [2, 3])
def test_a_share_of_an_epoch_is_as_long_as_an_epoch_of_a_site_with_that_share(sampler, parts):
    """All data in one place, and one of ``parts`` sites of equal size."""
    together = SliceSampler(sampler.store, sampler.indices, 2)
    site = SliceSampler(sampler.store, sampler.indices[: len(sampler) // parts], 2)
    preset = PRESET.changed({"pretraining.epoch_share": 1 / parts})
    (shared,) = run_rounds(together, [0], preset=preset)[2]
    assert abs(shared.steps - site.steps_per_epoch) <= 1 < together.steps_per_epoch - shared.steps
    assert shared.samples == len(sampler), "it draws from all slices"


def test_a_round_reports_what_it_did(sampler):
    method, _, (result,) = run_rounds(sampler, [0])
    assert (result.samples, result.steps) == (len(sampler), sampler.steps_per_epoch)
    assert 0 < result.loss < 4 and result.seconds > 0 and 0 < result.feature_std < 1.5
    assert not same_weights(method, build_method("fclopt", PRESET, 0)) and method.training


def test_a_round_replays_bit_for_bit_and_depends_on_seed_site_and_round(sampler):
    method, _, results = run_rounds(sampler, [0])
    again, _, repeated = run_rounds(sampler, [0])
    assert same_weights(method, again) and results[0].loss == repeated[0].loss
    for changed in (
        run_rounds(sampler, [1]),
        run_rounds(sampler, [0], site="site-2"),
        run_rounds(sampler, [0], seed=1),
    ):
        assert not same_weights(method, changed[0])


def test_a_round_is_the_plain_loop_over_batches(sampler):
    method, expected = run_rounds(sampler, [2])[0], build_method("fclopt", PRESET, 0)
    optimizer = torch.optim.SGD(
        [*expected.online.parameters(), *expected.predictor.parameters()], lr=0.05, momentum=0.9, weight_decay=1e-4
    )
    views = generator(0, "site-1", 2, "views")
    for batch in sampler.epoch(generator(0, "site-1", 2, "batches")):
        optimizer.zero_grad()
        expected.loss(batch, views).backward()
        optimizer.step()
        expected.after_step()
    assert same_weights(method, expected)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_state_through_files_continues_as_if_never_interrupted(sampler, tmp_path, name):
    preset = PRESET.changed({"pretraining.lr": 0.01, "pretraining.optimizer": name})
    expected, _, _ = run_rounds(sampler, [0, 1], preset=preset)
    method, optimizer, _ = run_rounds(sampler, [0], preset=preset)
    save_file(optimizer_state(optimizer), tmp_path / "optimizer.safetensors")
    save_file({n: v.contiguous() for n, v in method.state_dict().items()}, tmp_path / "method.safetensors")

    restored = build_method("fclopt", preset, seed=3)
    restored.load_state_dict(load_file(tmp_path / "method.safetensors"))
    optimizer = make_optimizer(restored)
    load_optimizer_state(optimizer, load_file(tmp_path / "optimizer.safetensors"))
    run_rounds(sampler, [1], restored, optimizer, preset)
    assert same_weights(restored, expected)


def test_training_lowers_the_loss(sampler):
    results = run_rounds(sampler, range(8))[2]
    assert results[-1].loss < 0.8 * results[0].loss


def test_a_fresh_optimizer_has_no_memory_and_takes_none():
    method = build_method("fclopt", PRESET, 0)
    optimizer = make_optimizer(method)
    assert optimizer_state(optimizer) == {}
    load_optimizer_state(optimizer, {})


def test_damaged_images_are_reported_with_site_and_round(sampler):
    class Damaged(SliceSampler):
        def epoch(self, generator):
            for batch in super().epoch(generator):
                batch.images[0, 0, 20, 20] = math.nan
                yield batch

    damaged = Damaged(sampler.store, sampler.indices, sampler.batch_size)
    with pytest.raises(FCLSegError, match=r"site-9: the loss became nan in round 3, step 1: lower"):
        run_rounds(damaged, [3], site="site-9")


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_every_optimizer_a_preset_may_name_is_built(name):
    optimizer = make_optimizer(build_method("fclopt", PRESET.changed({"pretraining.optimizer": name}), 0))
    assert type(optimizer).__name__.lower() == name


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_presets_weight_decay_reaches_the_optimizer(name):
    preset = PRESET.changed({"pretraining.optimizer": name, "pretraining.weight_decay": 0.3})
    assert [group["weight_decay"] for group in make_optimizer(build_method("fclopt", preset, 0)).param_groups] == [0.3]


def test_fine_tuning_uses_adam_whatever_the_preset_says():
    optimizer = make_optimizer(build_method("finetune_federated", PRESET, 0))
    assert isinstance(optimizer, torch.optim.Adam) and optimizer.param_groups[0]["lr"] == PRESET.finetuning.lr
    assert isinstance(make_optimizer(build_method("fclopt", PRESET, 0)), torch.optim.SGD)


def test_cosine_schedule_over_rounds():
    assert [cosine_lr(0.5, number, 4) for number in range(5)] == pytest.approx([0.5, 0.4267767, 0.25, 0.0732233, 0.0])


def test_collapse_measure_tells_collapsed_from_spread_features():
    random = torch.Generator().manual_seed(0)
    spread = torch.randn(4000, 32, generator=random)
    assert feature_std(spread) == pytest.approx(1.0, abs=0.02)
    assert feature_std(spread * 100) == pytest.approx(feature_std(spread), rel=1e-5)
    one_direction = torch.randn(1, 32, generator=random) * torch.rand(100, 1, generator=random)
    assert feature_std(one_direction) == pytest.approx(0.0, abs=1e-5)
    assert feature_std(one_direction + 0.01 * spread[:100]) < 0.3


def test_bfloat16_on_a_cpu_is_asked_for_and_changes_only_the_arithmetic(sampler):
    """With it the round differs in the last digits, of which bfloat16 has eight bits. Nothing is learnt, because steps
    would enlarge the difference. On a CPU without such instructions the round is the same."""
    device = torch.device("cpu")
    assert not computes_in_bfloat16(device, on_cpu=False)
    losses = []
    for asked in (False, True):
        method = build_method("fclopt", PRESET.changed({"pretraining.bfloat16": asked}), 0)
        optimizer = make_optimizer(method)
        result = train_round(method, sampler, optimizer, lr=0.0, epochs=1, seed=0, site="site-1", round_number=0)
        assert all(parameter.dtype == torch.float32 for parameter in method.parameters())
        losses.append(result.loss)
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert (losses[0] != losses[1]) == computes_in_bfloat16(device, on_cpu=True)
