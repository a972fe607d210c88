"""The search for the heart looks at whole slices once, and a window then moves to what it finds."""

import math

import numpy as np
import pytest
import torch

from fclseg.data.windows import Windows
from fclseg.inference.locate import find_hearts, middle, move

WINDOWS = Windows(size=32, pixel_mm=2.0, spacing=(1.5, 2.5))


def bright(images):
    """A network that takes what is bright for the heart, more surely the brighter it is."""
    return torch.cat([1 - images, images], dim=1)


def slices(*discs):
    """Discs (x, y, radius in mm, brightness) on 5 dark slices of 100 x 70 voxels."""
    x, y = np.mgrid[:100, :70] * np.array(WINDOWS.spacing)[:, None, None]
    plane = np.full((100, 70), 0.1, np.float32)
    for at_x, at_y, radius, shade in discs:
        plane[np.hypot(x - at_x * WINDOWS.spacing[0], y - at_y * WINDOWS.spacing[1]) < radius] = shade
    return torch.from_numpy(plane).expand(5, -1, -1)


@pytest.mark.parametrize("place", [(60, 40), (12, 58), (86, 14)])
def test_the_largest_pieces_may_be_the_heart(place):
    found, other = find_hearts(slices((*place, 18, 0.9), (45, 20, 9, 0.95), (70, 60, 3, 0.95)), WINDOWS, bright)
    assert math.dist(found.centre, place) < 2 and math.dist(other.centre, (45, 20)) < 2, "a small one is noise"
    # Areas of discs go with the square of the radius; each pixel counts with its probability.
    assert found.agreement == pytest.approx(18**2 * 0.9 / (18**2 * 0.9 + (9**2 + 3**2) * 0.95), abs=0.05)


def test_a_sure_piece_comes_before_a_larger_one_that_may_be_anything():
    first, second = find_hearts(slices((60, 40, 15, 0.98), (20, 15, 18, 0.56)), WINDOWS, bright)
    assert math.dist(first.centre, (60, 40)) < 2 and math.dist(second.centre, (20, 15)) < 2


def test_what_is_beyond_the_image_is_no_heart():
    def corner(images):
        found = torch.zeros_like(images)
        found[..., -6:, -6:] = 1
        return torch.cat([1 - found, found], dim=1)

    assert find_hearts(slices(), WINDOWS, corner) == []


def test_whole_slices_are_looked_at_once():
    seen = []
    find_hearts(slices((60, 40, 22, 0.9)), WINDOWS, lambda images: (seen.append(images.shape), bright(images))[1])
    ((count, channels, height, width),) = seen
    assert count == 3 and channels == 1, "three of the slices"
    assert height == width and height % 16 == 0 and height >= max(100 * 1.5, 70 * 2.5) / 2.0


def test_the_slices_are_those_of_the_middle():
    stack = torch.arange(11.0)[:, None, None]
    assert middle(stack, 3).flatten().tolist() == [2, 5, 8]
    assert middle(stack[:2], 5).flatten().tolist() == [0, 1]


def test_a_window_moves_to_the_centre_of_what_it_shows():
    images = slices((60, 40, 22, 0.9), (20, 15, 9, 0.6))
    assert move(images, (55, 36), WINDOWS, bright) == (60, 40)
    assert move(images, (22, 14), WINDOWS, bright) == (20, 15)
    assert move(images, (99, 0), WINDOWS, bright) == (99, 0), "nothing there"


def test_nothing_is_found_in_the_dark():
    assert find_hearts(slices(), WINDOWS, bright) == []
