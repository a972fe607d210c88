"""Positives and negatives of the global and the local loss against loops, and the two stages."""

import math
from copy import deepcopy
from itertools import product

import pytest
import torch
from torch.nn import functional

from fclseg.data.sampler import Batch
from fclseg.methods.fedgl import GlobalLocal, global_loss, local_loss
from fclseg.presets import get_preset

PRESET = get_preset("demo")


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow_loss(query, positives, negatives, temperature):
    def score(other):
        return math.exp(functional.cosine_similarity(query, other, dim=0) / temperature)

    background = sum(score(n) for n in negatives)
    terms = [-math.log(score(p) / (score(p) + background)) for p in positives]
    return sum(terms) / len(terms) if terms else 0.0


@pytest.mark.parametrize("ids", [[0, 1], [0, 1, 2, 3, 0, 1, 2, 3], [0, 0, 0, 1, 3, 1], [2, 2, 2]])
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_global_loss(ids, temperature):
    features, partitions = random(len(ids), 6), torch.tensor(ids)
    expected = [
        slow_loss(
            features[row],
            [features[i] for i, s in enumerate(ids) if s == ids[row] and i != row],
            [features[i] for i, s in enumerate(ids) if s != ids[row]],
            temperature,
        )
        for row in range(len(ids))
    ]
    value = global_loss(features, partitions, temperature)
    assert value.item() == pytest.approx(sum(expected) / len(expected), abs=1e-12)


@pytest.mark.parametrize("images, regions, temperature", list(product([1, 3], [2, 5], [0.1, 0.5])))
def test_local_loss(images, regions, temperature):
    versions = random(2, images, regions, 6)
    expected = [
        slow_loss(
            versions[v, image, r],
            [versions[1 - v, image, r]],
            [versions[1 - v, image, other] for other in range(regions) if other != r],
            temperature,
        )
        for v, image, r in product(range(2), range(images), range(regions))
    ]
    assert local_loss(*versions, temperature).item() == pytest.approx(sum(expected) / len(expected))


def batch(count=4):
    return Batch(torch.rand(count, 1, PRESET.images.size, PRESET.images.size), torch.arange(count) % 4)


@pytest.mark.parametrize("round_number, trains", [(0, "online"), (2, "online"), (3, "decoder")])
def test_each_stage_trains_its_part(round_number, trains):
    """Four rounds, three quarters of them global; the local stage leaves the encoder alone, its statistics included."""
    method = GlobalLocal(PRESET)
    before = deepcopy(method.online.state_dict())
    method.begin_round(None, round_number, torch.Generator())
    method.loss(batch(), torch.Generator().manual_seed(0)).backward()
    reached = {name.split(".")[0] for name, parameter in method.named_parameters() if parameter.grad is not None}
    assert reached == {trains} and method.online.training
    unchanged = all(torch.equal(before[name], value) for name, value in method.online.state_dict().items())
    assert unchanged == (trains == "decoder")


def test_local_versions_show_the_same_place():
    """Without intensity changes both versions of an image would be identical, so only intensities may differ."""
    method = GlobalLocal(PRESET)
    placed = method.place(batch().images, torch.Generator().manual_seed(1))
    assert placed.shape[-1] == PRESET.images.view_size
    binary = (placed > 0.5).float()
    seen = method.intensity(binary, torch.Generator().manual_seed(2))
    for before, after in zip(binary.flatten(1), seen.flatten(1), strict=True):
        assert torch.corrcoef(torch.stack([before, after]))[0, 1] > 0.8


def test_regions_do_not_overlap_and_lie_at_the_same_places():
    method = GlobalLocal(PRESET, regions=13, region_size=3)
    maps = torch.arange(16 * 16, dtype=torch.float32).reshape(1, 1, 16, 16).repeat(2, 1, 1, 1)
    regions = method._regions(maps, torch.Generator().manual_seed(0))
    assert regions.shape == (2, 13, 9)
    assert torch.equal(regions[0], regions[1])
    assert len(set(regions[0].flatten().tolist())) == 13 * 9
