"""The search for the heart asks the network for many windows at once, and finds what one window at a time finds."""

import math

import numpy as np
import torch
from scipy import ndimage

from fclseg.inference.locate import MEETING_MM, MOVES, _starts, find_heart, move
from fclseg.inference.windows import Windows, within

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


def one_by_one(images):
    """The same search as a plain loop: every window alone, moved until it stays."""
    places = []
    for centre in _starts(images.shape[1:], WINDOWS):
        sure = 0.0
        for _ in range(MOVES):
            found = bright(WINDOWS.cut(images, centre))
            pieces, count = ndimage.label((found.argmax(dim=1) > 0).numpy(), np.ones((3, 3, 3)))
            if count == 0:
                break
            largest = pieces == 1 + np.bincount(pieces.ravel())[1:].argmax()
            _, x, y = ndimage.center_of_mass(largest)
            sure = float(found[:, 1].numpy()[largest].mean())
            centre = within(WINDOWS.voxel(centre, (x, y)), images.shape[1:])
        places.append((centre, sure))
    return places


def test_the_search_is_that_of_single_windows():
    images = slices((60, 40, 22, 0.9), (20, 15, 9, 0.6), (88, 60, 7, 0.7))
    places = one_by_one(images[:3])

    def near(centre):
        steps = [((one[0] - centre[0]) * 1.5, (one[1] - centre[1]) * 2.5, sure) for one, sure in places]
        return sum(sure for x, y, sure in steps if math.hypot(x, y) < MEETING_MM)

    found = find_heart(images, WINDOWS, bright)
    assert math.dist(found.centre, (60, 40)) < 2
    assert found.centre == max(places, key=lambda one: near(one[0]))[0]
    assert found.agreement == np.float64(near(found.centre) / sum(sure for _, sure in places))


def test_each_place_is_looked_at_once():
    seen = []
    images = slices((60, 40, 22, 0.9))
    find_heart(images, WINDOWS, lambda windows: (seen.extend(windows), bright(windows))[1])
    assert len(seen) < 3 * MOVES * len(_starts(images.shape[1:], WINDOWS)), "windows meet"
    assert len(seen) % 3 == 0, "three of the slices"


def test_windows_that_move_together_do_not_mix():
    images = slices((60, 40, 22, 0.9), (20, 15, 9, 0.6))
    centres = [(55 + i % 7, 36 + i % 5) for i in range(35)] + [(20, 15), (99, 0)]
    together = move(images, centres, WINDOWS, bright)
    assert together == [one for centre in centres for one in move(images, [centre], WINDOWS, bright)]
    assert together[-1] == ((99, 0), 0.0) and together[-2][0] == (20, 15)


def test_nothing_is_found_in_the_dark():
    assert find_heart(slices(), WINDOWS, bright) is None
