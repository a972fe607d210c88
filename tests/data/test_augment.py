"""Batched augmentation against slow, obvious counterparts."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fclseg.data import augment
from fclseg.data.augment import RANGES, Ranges, Views, affine_maps, augment_labelled
from fclseg.presets import get_preset

STILL = Ranges(area=(1, 1), aspect=1, rotation=0, flip=0, gamma=1, contrast=0, brightness=0, noise=0, blur=0)
"""Ranges that change nothing."""


def with_ranges(**changes) -> Ranges:
    return Ranges(**{**vars(STILL), **changes})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def views_of(size: int, ranges: Ranges = RANGES) -> Views:
    return Views(get_preset("demo", view_size=size), ranges)


def blobs(count: int, height: int, width: int, seed: int = 0) -> torch.Tensor:
    """Label maps [B, H, W] of four classes with areas large enough to survive resampling."""
    coarse = torch.rand(count, 4, 5, 5, generator=seeded(seed))
    return F.interpolate(coarse, (height, width), mode="bilinear").argmax(1)


def slow_affine(image: np.ndarray, size, scale, angle, shift, mirror) -> np.ndarray:
    """Pixel by pixel: find the source position of each output pixel and interpolate between its four neighbours."""
    (in_h, in_w), (out_h, out_w) = image.shape, size
    fit = min(in_h / out_h, in_w / out_w)
    out = np.zeros(size)
    for i in range(out_h):
        for j in range(out_w):
            dx = mirror * scale[0] * fit * (j + 0.5 - out_w / 2)
            dy = scale[1] * fit * (i + 0.5 - out_h / 2)
            x = math.cos(angle) * dx - math.sin(angle) * dy + in_w / 2 * (1 + shift[0]) - 0.5
            y = math.sin(angle) * dx + math.cos(angle) * dy + in_h / 2 * (1 + shift[1]) - 0.5
            for row in (math.floor(y), math.floor(y) + 1):
                for column in (math.floor(x), math.floor(x) + 1):
                    if 0 <= row < in_h and 0 <= column < in_w:
                        out[i, j] += image[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return out


@pytest.mark.parametrize("in_size", [(16, 16), (12, 20), (21, 15)])
@pytest.mark.parametrize("out_size", [(16, 16), (9, 9), (14, 10)])
def test_affine_maps_equal_the_slow_loop(in_size, out_size):
    draw = np.random.default_rng(sum(in_size) + sum(out_size))
    count = 3
    images = torch.from_numpy(draw.random((count, 1, *in_size)))
    scale, shift = draw.uniform(0.5, 1.1, (2, count)), draw.uniform(-0.3, 0.3, (2, count))
    angle, mirror = draw.uniform(-3, 3, count), draw.choice([-1.0, 1.0], count)
    maps = affine_maps(*(torch.from_numpy(a) for a in (scale, angle, shift, mirror)), in_size, out_size)
    grid = F.affine_grid(maps, [count, 1, *out_size], align_corners=False)
    fast = F.grid_sample(images, grid, align_corners=False)
    for k in range(count):
        slow = slow_affine(images[k, 0].numpy(), out_size, scale[:, k], angle[k], shift[:, k], mirror[k])
        np.testing.assert_allclose(fast[k, 0].numpy(), slow, atol=1e-9)


@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
def test_ranges_that_allow_nothing_change_nothing(size):
    images, labels = torch.rand(4, 1, *size, generator=seeded()), blobs(4, *size)
    moved, moved_labels = augment_labelled(images, labels, seeded(), STILL)
    torch.testing.assert_close(moved, images, atol=1e-5, rtol=0)
    assert torch.equal(moved_labels, labels)


def test_a_quarter_turn_is_rot90():
    images = torch.rand(2, 1, 17, 17, generator=seeded())
    one, none = torch.ones(2, 2), torch.zeros(2, 2)
    maps = affine_maps(one, torch.full((2,), math.pi / 2), none, one[0], (17, 17), (17, 17))
    turned = F.grid_sample(images, F.affine_grid(maps, [2, 1, 17, 17], align_corners=False), align_corners=False)
    torch.testing.assert_close(turned, torch.rot90(images, 1, (2, 3)), atol=1e-5, rtol=0)


def test_a_certain_flip_mirrors_left_and_right():
    images = torch.rand(3, 1, 20, 20, generator=seeded())
    torch.testing.assert_close(views_of(20, with_ranges(flip=1))(images, seeded()), images.flip(3), atol=1e-5, rtol=0)


def test_the_defaults_never_mirror_a_heart():
    assert RANGES.flip == 0


@pytest.mark.parametrize("size", [(64, 64), (48, 72)])
def test_labels_move_with_their_image(size):
    labels = blobs(8, *size)
    images = (labels == 2).float()[:, None]
    geometry = Ranges(**{**vars(STILL), "area": RANGES.area, "aspect": 1.2, "rotation": 30})
    moved, moved_labels = augment_labelled(images, labels, seeded(3), geometry)
    assert not torch.equal(moved_labels, labels)
    for image, label in zip(moved[:, 0] > 0.5, moved_labels == 2, strict=True):
        dice = 2 * (image & label).sum() / (image.sum() + label.sum())
        assert dice > 0.95


def test_label_values_are_looked_up_and_never_blended():
    labels = torch.where(torch.rand(16, 40, 40, generator=seeded()) < 0.5, 255, 3)
    _, moved = augment_labelled(torch.rand(16, 1, 40, 40), labels, seeded(1))
    assert moved.dtype == labels.dtype
    assert set(moved.unique().tolist()) <= {0, 3, 255}  # 0 comes from outside the image


def test_labels_may_have_a_channel():
    images, labels = torch.rand(2, 1, 16, 16), blobs(2, 16, 16)
    with_channel = augment_labelled(images, labels[:, None], seeded(5))[1]
    assert torch.equal(with_channel[:, 0], augment_labelled(images, labels, seeded(5))[1])


def test_intensity_leaves_labels_alone():
    labels = blobs(4, 32, 32)
    images = torch.rand(4, 1, 32, 32, generator=seeded())
    ranges = with_ranges(gamma=1.5, contrast=0.3, brightness=0.2, noise=0.1, blur=0.4)
    moved, same = augment_labelled(images, labels, seeded(), ranges)
    assert torch.equal(same, labels)
    assert (moved - images).abs().mean() > 0.01


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("size", [(48, 48), (33, 50), (64, 64)])
@pytest.mark.parametrize("view", [16, 48])
def test_views_have_the_views_size_and_stay_in_range(count, size, view):
    images = torch.rand(count, 1, *size, generator=seeded())
    seen = views_of(view)(images, seeded(1))
    assert seen.shape == (count, 1, view, view)
    assert torch.isfinite(seen).all()
    assert seen.min() >= 0 and seen.max() <= 1


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_constant_image_gives_no_nan(value):
    assert torch.isfinite(views_of(16)(torch.full((3, 1, 24, 24), value), seeded())).all()


def test_the_same_seed_gives_the_same_bits_and_the_next_draw_does_not():
    images = torch.rand(5, 1, 32, 32, generator=seeded())
    views, source = views_of(24), seeded(7)
    first, second = views(images, source), views(images, source)
    assert torch.equal(first, views(images, seeded(7)))
    assert not torch.equal(first, second)
    labelled = augment_labelled(images, blobs(5, 32, 32), seeded(7))
    again = augment_labelled(images, blobs(5, 32, 32), seeded(7))
    assert all(torch.equal(a, b) for a, b in zip(labelled, again, strict=True))


def test_randomness_comes_from_the_generator_alone():
    images = torch.rand(2, 1, 32, 32)
    before = torch.get_rng_state()
    views_of(24)(images, seeded())
    assert torch.equal(before, torch.get_rng_state())


def test_every_sample_has_its_own_view():
    image = torch.rand(1, 1, 32, 32, generator=seeded())
    seen = views_of(24)(image.expand(6, 1, 32, 32), seeded())
    differences = torch.cdist(seen.flatten(1), seen.flatten(1)) + 9 * torch.eye(6)
    assert differences.min() > 0.5


def test_views_leave_the_input_and_the_state_alone():
    images = torch.rand(2, 1, 32, 32, generator=seeded())
    copy = images.clone()
    holder = torch.nn.Module()
    holder.views = views_of(24)
    holder.views(images, seeded())
    assert torch.equal(images, copy)
    assert not holder.state_dict() and not list(holder.parameters())


def test_drawn_maps_keep_to_their_ranges():
    images = torch.empty(4000, 1, 64, 64)
    maps = augment._random_affine(images, (64, 64), RANGES, seeded())
    area = torch.linalg.det(maps[:, :, :2])
    angle = torch.rad2deg(torch.atan2(maps[:, 1, 0], maps[:, 0, 0]))
    low, high = RANGES.area
    assert low - 1e-4 <= area.min() < low + 0.01 and high - 0.01 < area.max() <= high + 1e-4
    assert RANGES.rotation - 1 < angle.abs().max() <= RANGES.rotation + 1e-3
    assert abs(angle.mean()) < 1
    assert (maps[:, :, 2].abs() <= 1 - math.sqrt(low / RANGES.aspect) + 1e-4).all()


def test_blur_spreads_a_point_by_the_variance_it_is_given():
    point = torch.zeros(3, 1, 9, 9)
    point[:, :, 4, 4] = 1
    variance = torch.tensor([0.0, 0.2, 0.5])
    blurred = augment._blur(point, variance[:, None, None, None])[:, 0]
    offset = torch.arange(9.0) - 4
    torch.testing.assert_close(blurred.sum((1, 2)), torch.ones(3))
    torch.testing.assert_close((blurred.sum(1) * offset**2).sum(1), variance)
    torch.testing.assert_close((blurred.sum(2) * offset**2).sum(1), variance)


def test_noise_has_at_most_the_given_strength():
    flat = torch.full((200, 1, 32, 32), 0.5)
    spread = views_of(32, with_ranges(noise=0.05))(flat, seeded()).std(dim=(1, 2, 3))
    assert spread.max() < 0.055 and spread.min() < 0.005


def test_contrast_brightness_and_gamma_keep_to_their_ranges():
    images = 0.4 + 0.2 * torch.rand(300, 1, 32, 32, generator=seeded())
    spread = views_of(32, with_ranges(contrast=0.25))(images, seeded()).std((1, 2, 3)) / images.std((1, 2, 3))
    assert 0.745 < spread.min() < 0.77 and 1.23 < spread.max() < 1.255
    shift = views_of(32, with_ranges(brightness=0.1))(images, seeded()).mean((1, 2, 3)) - images.mean((1, 2, 3))
    assert -0.101 < shift.min() < -0.09 and 0.09 < shift.max() < 0.101
    flat = torch.full_like(images, 0.5)
    exponent = views_of(32, with_ranges(gamma=1.3))(flat, seeded()).mean((1, 2, 3)).log() / math.log(0.5)
    assert 1 / 1.31 < exponent.min() < 0.79 and 1.28 < exponent.max() < 1.31


def test_channels_are_moved_alike():
    image = torch.rand(2, 1, 32, 32, generator=seeded())
    seen = views_of(24, with_ranges(area=(0.6, 1), rotation=30))(image.repeat(1, 2, 1, 1), seeded(1))
    assert torch.equal(seen[:, 0], seen[:, 1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_view_is_the_same_on_a_gpu():
    images = torch.rand(4, 1, 48, 48, generator=seeded())
    on_gpu = views_of(32)(images.cuda(), seeded(2))
    assert on_gpu.is_cuda
    torch.testing.assert_close(on_gpu.cpu(), views_of(32)(images, seeded(2)), atol=1e-4, rtol=0)


def test_a_view_is_made_in_full_precision_within_a_mixed_step():
    images, labels = torch.rand(4, 1, 48, 48, generator=seeded()), blobs(4, 48, 48)

    def seen():
        return views_of(32)(images, seeded(2)), *augment_labelled(images, labels, seeded(2))

    plain = seen()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(torch.equal(*pair) for pair in zip(seen(), plain, strict=True))


def test_draws_follow_the_images_device_without_touching_data():
    seen = views_of(16)(torch.empty(2, 1, 32, 32, device="meta"), seeded())
    assert seen.device.type == "meta" and seen.shape == (2, 1, 16, 16)
