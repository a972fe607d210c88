"""The mean teacher against values computed by hand from its definition."""

from copy import deepcopy

import pytest
import torch
from torch.nn import functional

from fclseg.data.augment import RANGES, Ranges, augment_maps
from fclseg.data.sampler import Batch
from fclseg.methods.exchange import Flow, Row
from fclseg.methods.mean_teacher import sharpen
from fclseg.methods.registry import build_method
from fclseg.presets import get_preset
from fclseg.randomness import generator

PRESET = get_preset("demo", **{"networks.channels": (4, 8), "pretraining.phantom_patients": 2})
ALONE = Row("alone", "Alone", "mean_teacher:MeanTeacher", (Flow("online"), Flow("target")), {"anchor": 0.0})


def random_batch(size=5):
    return Batch(torch.rand(size, 1, 48, 48, generator=generator(1)), torch.zeros(size, dtype=torch.long))


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.25])
def test_sharpening_by_hand(temperature):
    scores = torch.rand(2, 3, 2, 2, generator=generator(2))
    belief = scores / scores.sum(dim=1, keepdim=True)
    found = sharpen(belief, temperature)
    for b, y, x in [(0, 0, 0), (1, 1, 0)]:
        powers = [float(belief[b, c, y, x]) ** (1 / temperature) for c in range(3)]
        assert found[b, :, y, x].tolist() == pytest.approx([p / sum(powers) for p in powers], rel=1e-5)


def test_loss_is_cross_entropy_and_dice_with_the_targets_moved_belief():
    method, batch = build_method(ALONE, PRESET, 0), random_batch()
    online, target = deepcopy(method.online), deepcopy(method.target)
    loss = method.loss(batch, generator(4))
    powers = target.train()(batch.images).softmax(dim=1) ** 2
    belief = powers / powers.sum(dim=1, keepdim=True)
    images, moved = augment_maps(batch.images, belief[:, 1:], generator(4))
    belief = torch.cat([1 - moved.sum(dim=1, keepdim=True), moved], dim=1)
    scores = online.train()(images)
    entropy = -(belief * functional.log_softmax(scores, dim=1)).sum(dim=1).mean()
    found = scores.softmax(dim=1)
    both, total = (found * belief).sum(dim=(2, 3)), (found + belief).sum(dim=(2, 3))
    dice = (1 - (2 * both + 1e-5) / (total + 1e-5)).mean()
    assert loss.item() == pytest.approx((entropy + dice).item(), rel=1e-4)


def test_the_anchor_adds_the_phantom_loss():
    method, alone = build_method("mean_teacher", PRESET, 0), build_method(ALONE, PRESET, 0)
    source = generator(4)
    expected = alone.loss(random_batch(), source)
    expected = expected + deepcopy(method).phantom_loss(source)
    assert method.loss(random_batch(), generator(4)).item() == pytest.approx(expected.item(), rel=1e-4)


def test_no_gradient_reaches_the_teacher_and_it_follows_the_student():
    method = build_method(ALONE, PRESET, 0)
    method.loss(random_batch(), generator(4)).backward()
    assert all(parameter.grad is None for parameter in method.target.parameters())
    before = method.target.decoder.head.weight.clone()
    with torch.no_grad():
        method.online.decoder.head.weight.add_(1.0)
    method.after_step()
    torch.testing.assert_close(method.target.decoder.head.weight, before + 0.01)


def test_maps_move_with_their_image():
    still = Ranges(area=(1, 1), aspect=1, rotation=0, flip=1, gamma=1, contrast=0, brightness=0, noise=0, blur=0)
    images = torch.rand(3, 1, 9, 9, generator=generator(5))
    moved, maps = augment_maps(images, torch.cat([images, 2 * images], dim=1), generator(6), still)
    torch.testing.assert_close(moved, images.flip(3), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(maps, torch.cat([moved, 2 * moved], dim=1), atol=1e-5, rtol=1e-5)


def test_what_comes_from_outside_the_image_is_nothing():
    wide = Ranges(**{**vars(RANGES), "area": (4.0, 4.0), "rotation": 0, "aspect": 1})
    _, maps = augment_maps(torch.ones(2, 1, 16, 16), torch.ones(2, 1, 16, 16), generator(7), wide)
    assert maps.mean().item() == pytest.approx(0.25, abs=0.01)
