"""Agreement of views and expected Dice, against values counted by hand."""

import pytest
import torch

from fclseg.anatomy.families.plain import from_labels
from fclseg.inference.reliability import reliability

ANATOMY = from_labels({"structures": {"1": "LV", "2": "MYO"}}, "the test")


def view(pixels, sure=1.0):
    """One row of 8 pixels in which the first ``pixels`` are structure 1."""
    scores = torch.zeros(1, 3, 1, 8)
    scores[:, 1, :, :pixels] = sure
    scores[:, 0] = 1 - scores[:, 1]
    return scores


def test_views_are_compared_with_their_mean():
    # Three of four views have 4 pixels and one has 2, so the mean has 4 pixels; 0.75 is still most likely.
    found = torch.stack([view(4), view(4), view(4), view(2)])
    heart, wall = reliability(found, ANATOMY)
    assert heart.agreement == pytest.approx((3 * 1 + 2 * 2 / (4 + 2)) / 4)
    assert wall.agreement == 1 and wall.expected == 1, "nothing was found in any view"


def test_the_expected_dice_is_that_of_the_probabilities():
    # 4 pixels of probability 0.8: twice 3.2 over 4 labelled pixels and a sum of 3.2.
    (heart, _) = reliability(torch.stack([view(4, 0.8)] * 2), ANATOMY)
    assert heart.expected == pytest.approx(2 * 3.2 / (4 + 3.2))
    assert heart.agreement == 1


def test_a_sure_network_expects_to_be_right():
    assert reliability(view(5)[None], ANATOMY)[0].expected == 1
