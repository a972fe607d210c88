"""The mean teacher against values computed by hand from its definition."""

from copy import deepcopy

import pytest
import torch
from torch.nn import functional

from fclseg.data.augment import RANGES, Ranges, augment_maps
from fclseg.data.sampler import Batch
from fclseg.methods import mean_teacher
from fclseg.methods.exchange import Flow, Row
from fclseg.methods.mean_teacher import BOX_AREA, boxes, pasted, sharpen, strong_views
from fclseg.methods.registry import build_method
from fclseg.presets import get_preset
from fclseg.randomness import generator

PRESET = get_preset("demo", **{"networks.channels": (4, 8), "pretraining.phantom_patients": 2})
NETWORKS = (Flow("online"), Flow("target"))
ALONE = Row("alone", "Alone", "mean_teacher:MeanTeacher", NETWORKS, {"anchor": 0.0, "mixed": 0.0})
ANCHORED = Row("anchored", "Anchored", "mean_teacher:MeanTeacher", NETWORKS, {"anchor": 0.7, "mixed": 0.0})


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


def by_hand(scores, truth):
    """Cross entropy, and half of 1 - Dice over the batch, without background, smoothed by one pixel."""
    entropy = -(truth * functional.log_softmax(scores, dim=1)).sum(dim=1).mean()
    shares, losses = scores.softmax(dim=1), []
    for c in range(1, scores.shape[1]):
        both, total = (shares[:, c] * truth[:, c]).sum(), (shares[:, c] + truth[:, c]).sum()
        losses.append(1 - (2 * both + 1) / (total + 1))
    return entropy + sum(losses) / len(losses) / 2


def test_loss_is_cross_entropy_and_dice_with_the_targets_moved_belief():
    method, batch = build_method(ALONE, PRESET, 0), random_batch()
    online, target = deepcopy(method.online), deepcopy(method.target)
    loss = method.loss(batch, generator(4))
    powers = target.train()(batch.images).softmax(dim=1) ** 2
    belief = powers / powers.sum(dim=1, keepdim=True)
    images, moved = augment_maps(batch.images, belief[:, 1:], generator(4))
    belief = torch.cat([1 - moved.sum(dim=1, keepdim=True), moved], dim=1)
    assert loss.item() == pytest.approx(by_hand(online.train()(images), belief).item(), rel=1e-4)


def test_the_anchor_adds_the_phantom_loss():
    method, alone = build_method(ANCHORED, PRESET, 0), build_method(ALONE, PRESET, 0)
    online, source = deepcopy(method.online).train(), generator(4)
    expected = alone.loss(random_batch(), source)
    images, labels = method.phantom_batch(source)
    truth = torch.stack([labels[:5, 0] == c for c in range(4)], dim=1).float()
    expected = expected + 0.7 * by_hand(online(images[:5]), truth)
    assert method.loss(random_batch(), generator(4)).item() == pytest.approx(expected.item(), rel=1e-4)


def test_boxes_are_squares_of_the_given_sizes_in_the_given_fraction_of_images():
    masks = boxes(torch.zeros(400, 1, 40, 40), 0.5, generator(8))
    assert masks.shape == (400, 1, 40, 40)
    with_box = [mask[0] for mask in masks if mask.any()]
    assert 150 < len(with_box) < 250
    places = set()
    for mask in with_box:
        rows, columns = mask.any(dim=1).nonzero()[:, 0], mask.any(dim=0).nonzero()[:, 0]
        height, width = (int(side[-1] - side[0]) + 1 for side in (rows, columns))
        assert mask.sum() == height * width  # a full rectangle
        assert abs(height - width) <= 1
        assert BOX_AREA[0] - 0.05 < height * width / 1600 < BOX_AREA[1] + 0.05
        places.add((int(rows[0]), int(columns[0])))
    assert len(places) > 50
    assert not boxes(torch.zeros(50, 1, 40, 40), 0.0, generator(8)).any()


def test_truth_goes_with_its_image_into_the_box():
    mask = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    mask[..., 1:3, 2:] = True
    source, onto = (
        (torch.full((1, 1, 4, 4), grey), torch.full((1, 3, 4, 4), share)) for grey, share in ((5, 1), (0, 0))
    )
    images, truth = pasted(mask, source, onto)
    assert (images == 5.0 * mask).all()
    assert (truth == mask.expand(1, 3, 4, 4).float()).all()


def test_patients_and_phantoms_exchange_boxes_in_both_directions(monkeypatch):
    """Patients are 0.25 everywhere and phantoms 0.75: what each forward pass sees tells where its pixels are from."""
    method, seen = build_method("mean_teacher", PRESET, 0), []
    flat = torch.full((6, 1, 48, 48), 0.25)
    views = (flat, torch.nn.functional.one_hot(torch.zeros(6, 48, 48, dtype=torch.long), 4).movedim(-1, 1).float())
    monkeypatch.setattr(mean_teacher, "strong_views", lambda *_: views)
    labels = torch.full((6, 1, 48, 48), 3)
    monkeypatch.setattr(method, "phantom_batch", lambda _: (torch.full((6, 1, 48, 48), 0.75), labels))
    method.mixed = 2.0  # a box in every image
    monkeypatch.setattr(mean_teacher, "_loss", lambda _, labelled: seen.append(labelled) or 0.0)
    method.loss(Batch(flat, torch.zeros(6, dtype=torch.long)), generator(9))
    truths = [truth for _, truth in seen]
    patients, phantoms = (images for images, _ in seen)
    mask = patients == 0.75
    assert 0.2 < mask.float().mean() < 0.55
    assert ((phantoms == 0.25) == mask).all()
    assert (truths[0].argmax(dim=1) == 3 * mask[:, 0]).all()
    assert (truths[1].argmax(dim=1) == 3 * ~mask[:, 0]).all()


def test_strong_views_show_other_slices_in_their_boxes(monkeypatch):
    """Slices of one grey value each and a belief that is this value: every pixel must still match its truth."""
    monkeypatch.setattr(mean_teacher, "augment_maps", lambda images, maps, *_: (images, maps))
    grey = torch.linspace(0.1, 0.9, 8)[:, None, None, None].expand(8, 1, 48, 48)
    views, truth = strong_views(
        lambda images: torch.cat([1 - images, images], dim=1).log(), grey, generator(3), 1.0, 0.5
    )
    torch.testing.assert_close(truth, torch.cat([1 - views, views], dim=1))
    assert 2 <= sum(len(one.unique()) == 2 for one in views) <= 6


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
