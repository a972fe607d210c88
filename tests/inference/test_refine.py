"""Averaging over rotated images, and cleaning, against small cases computed by hand."""

import numpy as np
import pytest
import torch

from fclseg.anatomy.families.plain import from_labels
from fclseg.anatomy.registry import get_anatomy
from fclseg.inference.refine import VIEWS, averaged, cleaned, views

ACDC = get_anatomy("acdc")


def one_hot(images):
    """Bright pixels are class 1: a predictor that rotates with its image."""
    return torch.cat([1 - images, images], dim=1)


def disc(size=48, radius=9.0):
    x, y = np.mgrid[:size, :size] - (size - 1) / 2
    return torch.from_numpy((np.hypot(x, y) < radius).astype(np.float32))[None, None]


def test_every_view_is_asked_once():
    seen = []
    averaged(lambda images: (seen.append(images), one_hot(images))[1])(disc())
    assert len(seen) == len(VIEWS)
    areas = sorted(float(images.sum()) for images in seen)
    # A window that shows 0.9 of the side makes the disc 1 / 0.9 times as wide.
    full = float(disc().sum())
    assert areas[0] == pytest.approx(full / 1.12**2, rel=0.03)
    assert areas[-1] == pytest.approx(full / 0.9**2, rel=0.03)


def test_the_first_view_is_the_image_itself():
    images = torch.rand(2, 1, 48, 48, generator=torch.Generator().manual_seed(0))
    found = views(images, one_hot, 1)
    assert found.shape == (1, 2, 2, 48, 48) and torch.equal(found[0], one_hot(images))


def test_what_turns_with_the_image_comes_back_to_its_place():
    bar = torch.zeros(2, 1, 48, 48)
    bar[0, 0, 10:38, 20:26] = 1
    bar[1, 0, 30:40, 8:30] = 1
    found = averaged(one_hot)(bar)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(2, 48, 48))
    agreement = (found.argmax(dim=1) == bar[:, 0]).float().mean()
    assert agreement > 0.99
    alone = (views(bar, one_hot).argmax(dim=2) == bar[:, 0]).float().mean(dim=(1, 2, 3))
    assert alone.min() > 0.97, "each view by itself, because three straight ones outvote two that stay turned"


def test_a_predictor_that_depends_on_direction_is_averaged():
    """A predictor that depends only on the row gives 0 or 1 without averaging; rotated, it is unsure at the sides."""

    def upper_half(images):
        top = torch.zeros_like(images)
        top[..., : images.shape[2] // 2, :] = 1
        return one_hot(top)

    found = averaged(upper_half)(torch.zeros(1, 1, 48, 48))[0, 1]
    assert found[2, 24] == pytest.approx(1) and found[45, 24] == pytest.approx(0)
    assert found[20, 2] == pytest.approx(4 / 5, abs=0.02)  # all but one of the five views see it above the middle


def test_a_structure_is_where_the_others_are_even_if_something_larger_lies_beyond_the_apex():
    """One component of all structures together: a wall beside a small ventricle, and the same label in slices below."""
    labels = np.zeros((4, 12, 12), np.uint8)
    labels[:2, 2:4, 2:5] = 1
    labels[:2, 2:4, 5:8] = 2
    wanted = labels.copy()
    labels[2:, 4:10, 8:12] = 1  # touches the wall by a corner
    np.testing.assert_array_equal(cleaned(labels, ACDC), wanted)
    alone = np.where(labels == 1, labels, 0).astype(np.uint8)
    assert (cleaned(alone, ACDC)[2:] == 1).sum() == 48, "without others, the largest is kept"


def test_cleaning_keeps_one_piece_of_each_structure_and_fills_the_cavity():
    labels = np.zeros((3, 12, 12), np.uint8)
    labels[:, 3:9, 3:9] = 2  # wall
    labels[:, 4:8, 4:8] = 3  # cavity
    labels[1, 5, 5] = 0  # a hole in the cavity
    labels[1, 6, 6] = 1  # a speck of RV within the cavity
    labels[0, 4:7, 9:11] = 1  # the RV, beside the wall
    labels[2, 0, 0] = 3  # far from the heart
    wanted = labels.copy()
    wanted[1, 5, 5] = wanted[1, 6, 6] = 3
    wanted[2, 0, 0] = 0
    np.testing.assert_array_equal(cleaned(labels, ACDC), wanted)


def test_structures_of_other_organs_may_have_several_pieces():
    labels = np.zeros((1, 5, 9), np.uint8)
    labels[0, 2, 1:8] = [1, 1, 2, 1, 2, 2, 1]
    labels[0, 0, 8] = 2
    wanted = labels.copy()
    wanted[0, 0, 8] = 0
    np.testing.assert_array_equal(cleaned(labels, get_anatomy("hvsmr")), wanted)


def test_organs_that_have_nothing_to_do_with_each_other_are_all_kept_and_lose_small_components():
    labels = np.zeros((1, 20, 40), np.uint8)
    labels[0, 2:12, 2:12] = 1  # liver
    labels[0, 2:8, 30:36] = 2  # two kidneys, smaller than the liver
    labels[0, 12:18, 30:36] = 2
    wanted = labels.copy()
    labels[0, 18, 2] = 1
    labels[0, 0, 20:22] = 2
    plain = from_labels({"structures": {"1": "liver", "2": "kidneys"}}, "the test")
    np.testing.assert_array_equal(cleaned(labels, plain), wanted)


def test_an_empty_prediction_stays_empty():
    assert not cleaned(np.zeros((2, 4, 4), np.uint8), ACDC).any()
