"""Cavities are reduced to their blood where they are mostly dark. The discs are drawn, so the right answer is known."""

import numpy as np

from fclseg.anatomy.families.acdc import ANATOMY
from fclseg.inference.blood import cavities_of_blood, hull_within

RV, MYO, LV = 1, 2, 3
X, Y = np.meshgrid(np.arange(60), np.arange(60), indexing="ij")


def disc(radius, centre=(30, 30)):
    return np.hypot(X - centre[0], Y - centre[1]) <= radius


def heart(outlined, blood):
    """One slice: an LV outlined with one radius in a wall of 20, and blood of another radius; the RV is a disc."""
    labels = np.select([disc(outlined), disc(20), disc(6, (54, 30))], [LV, MYO, RV], 0).astype(np.uint8)
    grey = np.where(disc(blood) | disc(6, (54, 30)), 0.8, 0.2)
    return labels, grey


def test_an_outline_full_of_wall_shrinks_to_the_blood():
    labels, grey = heart(outlined=14, blood=5)
    usual, bright = heart(outlined=10, blood=10)
    found = cavities_of_blood(np.stack([usual, labels]), np.stack([bright, grey]), ANATOMY)
    np.testing.assert_array_equal(found[0], usual)
    np.testing.assert_array_equal(found[1] == LV, disc(5))
    np.testing.assert_array_equal(found[1] > 0, labels > 0)
    assert (labels == LV).sum() == disc(14).sum(), "the argument is left as it was"


def test_a_little_wall_and_papillary_muscles_stay_in_the_cavity():
    labels, grey = heart(outlined=10, blood=9)  # .8 of the area
    grey[28:32, 24:27] = 0.2
    np.testing.assert_array_equal(cavities_of_blood(labels[None], grey[None], ANATOMY)[0], labels)
    labels, grey = heart(outlined=14, blood=8)
    grey[28:32, 24:27] = 0.2
    np.testing.assert_array_equal(cavities_of_blood(labels[None], grey[None], ANATOMY)[0] == LV, disc(8))


def test_nothing_happens_without_wall_or_blood_to_compare_with():
    labels, grey = heart(outlined=14, blood=5)
    alone = np.where(labels == LV, LV, 0).astype(np.uint8)
    np.testing.assert_array_equal(cavities_of_blood(alone[None], grey[None], ANATOMY)[0], alone)
    assert not cavities_of_blood(np.zeros_like(labels)[None], grey[None], ANATOMY).any()


def test_a_hull_needs_a_triangle():
    line = np.zeros((9, 9), bool)
    line[4, 2:7] = True
    np.testing.assert_array_equal(hull_within(line, np.ones_like(line)), line)
    assert not hull_within(np.zeros_like(line), np.ones_like(line)).any()
    corners = np.zeros_like(line)
    corners[[1, 1, 7, 7], [1, 7, 1, 7]] = True
    assert hull_within(corners, np.ones_like(line)).sum() == 49
