"""The colours of a picture are those of the structures that were found."""

import numpy as np
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from fclseg.anatomy.registry import ANATOMIES
from fclseg.inference import overlay
from fclseg.inference.measure import Measurement
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
    """On black pixels of a tenth of a voxel, a square of 2 x 3 voxels has an outline on its border and nowhere else."""
    for structure in ACDC.structures:
        classes = np.zeros((8, 7), np.uint8)  # [X, Y]
        classes[2:4, 3:6] = structure.value
        picture = np.asarray(overlay._outlined(Image.new("RGBA", (80, 70), "black"), classes, ACDC))[..., :3]
        drawn = picture.any(axis=-1)  # [Y, X]
        assert to_hex(picture[30, 30] / 255) == to_hex(structure.colour), "the upper border, half-way"
        assert drawn[45, 20] and drawn[45, 40] and drawn[60, 30], "the other borders"
        assert not drawn[34:56, 24:36].any(), "inside"
        drawn[26:64, 16:44] = False
        assert not drawn.any(), "outside"


def test_nothing_to_outline_is_no_error(tmp_path):
    """A structure that fills the image has no outline, and a line of voxels has no inside."""
    one = Measurement("Anna", "ED", "a.nii.gz", {"RV": 1.0})
    for shape in ((9, 9, 1), (1, 9, 3), (9, 1, 3)):
        overlay.write_overlay(tmp_path / "a.png", np.ones(shape), np.ones(shape, np.uint8), (1.0, 1.0, 8.0), ACDC, one)
        with Image.open(tmp_path / "a.png") as picture:
            assert picture.width >= overlay.NARROWEST


def test_slices_lie_side_by_side_in_the_order_of_the_stack():
    stack = np.stack([np.full((3, 2), number) for number in range(1, 8)], axis=-1)  # [X, Y, S]
    grid = overlay._grid(7)
    assert grid == (4, 2)  # evenly filled rows
    picture, places = overlay._mosaic(stack, grid, 0)
    assert picture.shape == (4 * 3 + 3 * overlay.GAP, 2 * 2 + overlay.GAP)
    assert [int(picture[x + 2, y + 1]) for x, y in places] == [1, 2, 3, 4, 5, 6, 7]
    assert places[4] == (0, 2 + overlay.GAP) and int((picture > 0).sum()) == 7 * 6
