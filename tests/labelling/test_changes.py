"""How much two label maps differ."""

import numpy as np
import pytest

from fclseg.labelling.changes import overlap_of_structures


def test_dice_of_each_structure_counts_the_same():
    one, other = np.zeros((4, 4), np.uint8), np.zeros((4, 4), np.uint8)
    one[0], other[0] = 1, (1, 1, 0, 0)  # Dice 2 x 2 / (4 + 2)
    one[1], other[1] = 2, 2  # 1
    one[2], other[3] = 3, 3  # 0
    assert overlap_of_structures(one, other) == pytest.approx((4 / 6 + 1 + 0) / 3)
    assert overlap_of_structures(np.zeros(3), np.zeros(3)) == 1.0
