"""One scan stored in all 48 orders of its axes gives the same slices, and label maps go back where they came from."""

from itertools import permutations, product

import nibabel as nib
import numpy as np
import pytest

from fclseg.anatomy.folders import read_folder, scan_folder
from fclseg.anatomy.orientation import find_storage
from fclseg.anatomy.records import read_images
from fclseg.data.check import check_folder

LPS = np.diag([-1.5, -1.5, 8.0, 1.0])
ORDERS = [(axes, flips) for axes in permutations(range(3)) for flips in product((False, True), repeat=3)]


def short_axis():
    """Double-oblique as in a patient: x to septum and left, y down, slices from base to apex. In RAS."""
    apex = np.array([-0.7, 0.5, -0.5]) / np.linalg.norm([0.7, 0.5, 0.5])
    down = np.array([0.0, 0.0, -1.0]) - apex * 0.5 / np.linalg.norm([0.7, 0.5, 0.5])
    down /= np.linalg.norm(down)
    right = np.cross(down, -apex)
    affine = np.eye(4)
    affine[:3, :3] = np.stack([1.5 * right, 1.4 * down, 8.0 * apex], axis=1)
    affine[:3, 3] = (12.0, -40.0, 33.0)
    return affine


def reordered(voxels, affine, axes, flips):
    """The same image in the world, by nibabel."""
    image = nib.Nifti1Image(voxels, affine)
    orientation = [[axes[i], -1 if flips[i] else 1] for i in range(3)]
    return image.as_reoriented(np.array(orientation))


@pytest.mark.parametrize("affine", [LPS, short_axis()], ids=["nominal", "oblique"])
def test_every_order_of_storage_gives_the_same_voxels_and_the_way_back(tmp_path, affine):
    rng = np.random.default_rng(0)
    voxels = rng.integers(0, 1000, (12, 11, 5), dtype=np.int16)
    label = rng.integers(0, 4, voxels.shape, dtype=np.uint8)
    for number, (axes, flips) in enumerate(ORDERS):
        folder = tmp_path / str(number)
        folder.mkdir()
        image = reordered(voxels, affine, axes, flips)
        nib.save(image, folder / "a.nii")
        other = ORDERS[(7 * number + 3) % len(ORDERS)]  # the label map is stored in yet another order
        nib.save(reordered(label, affine, *other), folder / "a_gt.nii")
        (volume,) = read_folder(folder)
        ((_, inside),) = read_images([volume])
        np.testing.assert_array_equal(inside, voxels)
        np.testing.assert_array_equal(volume.read_label(), label)
        np.testing.assert_array_equal(volume.storage.outside(inside), np.asarray(image.dataobj))
        sizes = np.linalg.norm(affine[:3, :3], axis=0)
        assert volume.spacing == pytest.approx(sizes, rel=1e-5)


def test_the_affine_in_our_order_is_the_one_the_image_was_made_with():
    for axes, flips in ORDERS:
        image = reordered(np.zeros((12, 11, 5)), short_axis(), axes, flips)
        stored = tuple(tuple(row) for row in image.affine[:3])
        storage = find_storage(stored, image.shape, image.header.get_zooms(), 2)
        np.testing.assert_allclose(storage.affine(stored, image.shape), short_axis(), atol=1e-5)


def test_isotropic_images_and_images_without_an_affine():
    plain = find_storage(tuple(map(tuple, np.eye(4)[[2, 0, 1]][:3])), (9, 9, 9), (1, 1, 1), 2)
    assert plain.axes[2] == 1, "the axis that runs to the head"
    unknown = find_storage(None, (5, 64, 64), (8.0, 1.5, 1.5), 2)
    assert unknown.axes == (1, 2, 0) and unknown.flips == (False,) * 3 and unknown.remark
    assert find_storage(None, (9, 9, 9), (1, 1, 1), 1).axes == (0, 2, 1)


MOVED = {
    "flipped": lambda label, affine: (label, affine @ np.diag([-1.0, 1, 1, 1])),
    "reversed slices": lambda label, affine: (label, affine @ np.diag([1.0, 1, -1, 1])),
    "shifted": lambda label, affine: (label, affine + np.outer([1, 0, 0, 0], [0, 0, 0, 3.0])),
    "other spacing": lambda label, affine: (label, affine @ np.diag([1.2, 1.2, 1, 1])),
    "oblique": lambda label, affine: (label, short_axis()),
}


@pytest.mark.parametrize("fault", MOVED)
def test_label_maps_that_lie_elsewhere_are_named(tmp_path, fault):
    voxels = np.random.default_rng(0).integers(0, 1000, (12, 11, 5), dtype=np.int16)
    label, affine = MOVED[fault]((voxels > 500).astype(np.uint8), LPS)
    nib.save(nib.Nifti1Image(voxels, LPS), tmp_path / "a.nii")
    nib.save(nib.Nifti1Image(label, affine), tmp_path / "a_gt.nii")
    (problem,) = scan_folder(tmp_path).problems
    assert "a_gt.nii: by its affine, the label map is up to" in problem


def test_check_prints_the_axes_and_warns_where_they_differ(tmp_path):
    rng = np.random.default_rng(0)
    for name, flips in (("a", (False, False, False)), ("b", (True, True, False))):
        voxels = rng.integers(0, 1000, (12, 11, 5), dtype=np.int16)
        nib.save(reordered(voxels, LPS, (0, 1, 2), flips), tmp_path / f"{name}.nii")
    report = check_folder(tmp_path)
    assert report.problems == [] and [row.codes for row in report.patients] == [{"LPS"}, {"RAS"}]
    (warning,) = report.warnings
    assert "1 LPS, 1 RAS" in warning
