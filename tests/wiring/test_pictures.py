"""The colours of a picture are those of the structures that were found."""

from types import SimpleNamespace

import numpy as np
from matplotlib.colors import to_hex, to_rgb

from fclseg.anatomy.registry import ANATOMIES
from fclseg.finetune.inference import overlay
from fclseg.study.report.pictures import ENLARGE, paint

ACDC = ANATOMIES["acdc"]


def test_each_structure_of_the_report_has_its_own_colour():
    labels = np.array([[0, 1], [2, 3]], np.uint8)
    palette = np.array([to_rgb(one.colour) for one in ACDC.structures])
    picture = paint(np.zeros((2, 2)), labels, palette)
    shown = [picture[row * ENLARGE, column * ENLARGE] for row, column in ((0, 1), (1, 0), (1, 1))]
    assert not picture[0, 0].any(), "background stays as it was"
    for colour, structure in zip(shown, ACDC.structures, strict=True):
        assert to_hex(colour / colour.max()) == to_hex(
            np.array(to_rgb(structure.colour)) / max(to_rgb(structure.colour))
        )


def test_each_outline_encloses_its_structure():
    drawn = {}
    axis = SimpleNamespace(contour=lambda x, y, mask, levels, colors, linewidths: drawn.update({colors[0]: mask}))
    classes = np.zeros((6, 4), np.uint8)
    classes[0, :2], classes[2:4, 1], classes[5, 3] = 1, 2, 3
    overlay._outline(axis, classes, ACDC, (1.0, 1.0, 8.0))
    for structure in ACDC.structures:
        np.testing.assert_array_equal(drawn[structure.colour], (classes == structure.value).T)


def test_slices_lie_side_by_side_in_the_order_of_the_stack():
    stack = np.stack([np.full((3, 2), number) for number in range(1, 8)], axis=-1)  # [X, Y, S]
    grid = overlay._grid(7)
    assert grid == (4, 2)  # evenly filled rows
    picture, places = overlay._mosaic(stack, grid, 0)
    assert picture.shape == (4 * 3 + 3 * overlay.GAP, 2 * 2 + overlay.GAP)
    assert [int(picture[x + 2, y + 1]) for x, y in places] == [1, 2, 3, 4, 5, 6, 7]
    assert places[4] == (0, 2 + overlay.GAP) and int((picture > 0).sum()) == 7 * 6
