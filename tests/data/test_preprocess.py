"""Pre-processing against slow implementations or analytic values."""

import nibabel as nib
import numpy as np
import pytest
from monai.transforms import ScaleIntensityRangePercentiles

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.nifti import read_voxels
from fclseg.anatomy.records import Volume
from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.preprocess import Preprocessor, partitions
from fclseg.errors import DataError


def volume(tmp_path, spacing=(1.5, 1.5, 8.0), anatomy="acdc", frame=1, **fields):
    return Volume(
        "p", frame, None, tmp_path / "p.nii.gz", tmp_path / "p_gt.nii.gz", spacing, ANATOMIES[anatomy], **fields
    )


@pytest.mark.parametrize("slices", range(1, 30))
def test_partitions_are_ordered_groups_of_nearly_equal_size(slices):
    found = partitions(slices, 4)
    assert len(found) == slices and found.dtype == np.uint8
    if slices >= 4:
        oracle = [part for part, group in enumerate(np.array_split(np.arange(slices), 4)) for _ in group]
        assert found.tolist() == oracle
    assert (np.diff(found.astype(int)) >= 0).all() and found.max() <= 3
    assert len(set(found.tolist())) == min(slices, 4)


def test_short_volumes_are_spread_over_the_heart():
    assert [partitions(n, 4).tolist() for n in (1, 2, 3)] == [[2], [1, 3], [0, 2, 3]]


def test_intensities_are_scaled_on_the_volumes_percentiles(tmp_path):
    voxels = np.random.default_rng(0).gamma(2.0, 300.0, (32, 32, 5)).astype(np.float32)
    low, high = np.percentile(voxels, [1, 99])
    slices = Preprocessor(32, 1.5).image(voxels, volume(tmp_path))
    assert slices.dtype == np.float16
    by_hand = np.clip((voxels - low) / (high - low), 0, 1)
    by_monai = np.asarray(ScaleIntensityRangePercentiles(1, 99, 0.0, 1.0, clip=True)(voxels))
    for oracle in (by_hand, by_monai):
        np.testing.assert_allclose(slices, np.moveaxis(oracle, -1, 0), atol=1e-3)


@pytest.mark.parametrize("pixel", [1.0, 1.37, 1.8, 2.5])
@pytest.mark.parametrize("target", [1.25, 2.5])
def test_a_disc_keeps_its_size_in_millimetres(tmp_path, pixel, target):
    """The reason to resample: stored pixels times pixel area is the area in the body, for every scanner."""
    radius, n = 30.0, int(200 / pixel)
    x, y = np.meshgrid(*[(np.arange(n) - (n - 1) / 2) * pixel] * 2, indexing="ij")
    label = np.repeat((x**2 + y**2 < radius**2)[..., None], 3, axis=2).astype(np.uint8)
    record = volume(tmp_path, (pixel, pixel, 8.0))
    slices = Preprocessor(int(180 / target), target).label(label, record, label.shape)
    areas = (slices == 1).sum((1, 2)) * target**2
    np.testing.assert_allclose(areas, np.pi * radius**2, rtol=0.04)


def test_anisotropic_pixels_become_square(tmp_path):
    label = np.zeros((60, 30, 2), np.uint8)
    label[20:40, 10:20] = 1  # 20 x 10 pixels of 1 x 2 mm
    slices = Preprocessor(64, 1.0).label(label, volume(tmp_path, (1.0, 2.0, 8.0)), label.shape)
    rows, columns = np.nonzero(slices[0])
    assert abs(np.ptp(rows) - np.ptp(columns)) <= 1


def test_slices_never_mix_and_labels_stay_classes(tmp_path):
    rng = np.random.default_rng(1)
    label = np.broadcast_to(np.arange(4, dtype=np.uint8), (40, 36, 4))
    slices = Preprocessor(24, 1.3).label(label, volume(tmp_path), label.shape)
    assert [np.unique(part).tolist() for part in slices] == [[0], [1], [2], [3]]
    noise = rng.integers(0, 4, (40, 36, 5), dtype=np.uint8)
    assert set(np.unique(Preprocessor(48, 0.9).label(noise, volume(tmp_path), noise.shape))) <= {0, 1, 2, 3}
    ramp = np.broadcast_to(np.linspace(0, 1000, 7, dtype=np.float32), (40, 36, 7))
    images = Preprocessor(24, 1.3).image(ramp, volume(tmp_path)).astype(np.float32)
    assert np.ptp(images, axis=(1, 2)).max() < 1e-3 and (np.diff(images[:, 0, 0]) > 0.1).all()


def test_image_and_label_stay_on_top_of_each_other(tmp_path):
    label = np.zeros((90, 70, 3), np.uint8)
    label[30:60, 20:45] = 3
    prepare, record = Preprocessor(48, 2.1), volume(tmp_path)
    image = prepare.image(label.astype(np.float32) * 100, record)
    np.testing.assert_array_equal(image > 0.5, prepare.label(label, record, label.shape) == 3)


def test_oblique_affine_gives_the_same_slices(tmp_path, save_nifti):
    """Only voxel sizes matter: an oblique stack is not rotated, and its slice axis stays last."""
    rng = np.random.default_rng(2)
    voxels = rng.integers(0, 1000, (40, 36, 5), dtype=np.int16)
    turn = nib.eulerangles.euler2mat(0.4, -0.7, 0.3)
    oblique = np.eye(4)
    oblique[:3, :3] = turn @ np.diag([1.5, 1.5, 8.0])
    results = []
    for name, affine in (("straight", None), ("oblique", oblique)):
        save_nifti(tmp_path / name / "heart.nii.gz", voxels, affine=affine)
        (record,) = read_folder(tmp_path / name)
        assert record.spacing == pytest.approx((1.5, 1.5, 8.0))
        results.append(Preprocessor(32, 2.0).image(read_voxels(record.image), record))
    np.testing.assert_allclose(*results, atol=2e-3)


def test_crop_and_pad_keep_the_centre(tmp_path):
    label = np.zeros((41, 41, 1), np.uint8)
    label[20, 20] = 1
    for size in (21, 61):
        slices = Preprocessor(size, 1.5).label(label, volume(tmp_path), label.shape)
        assert slices.shape == (1, size, size)
        assert np.argwhere(slices[0]).tolist() == [[size // 2, size // 2]]


@pytest.mark.parametrize(
    ("voxels", "sentence"),
    [
        (np.full((8, 8, 3), np.nan, np.float32), "NaN, infinite"),
        (np.where(np.arange(192).reshape(8, 8, 3) == 7, np.inf, 1.0), "NaN, infinite"),
        (np.full((8, 8, 3), 7, np.int16), "constant"),
    ],
)
def test_images_without_grey_values_are_refused(tmp_path, voxels, sentence):
    with pytest.raises(DataError, match=rf"p\.nii\.gz: .*{sentence}"):
        Preprocessor(8, 1.5).image(voxels, volume(tmp_path))
    with pytest.raises(DataError, match=rf"p\.nii\.gz frame 5: .*{sentence}"):
        Preprocessor(8, 1.5).image(voxels, volume(tmp_path, frame=5, time_index=4))


@pytest.mark.parametrize(
    ("anatomy", "value", "allowed"),
    [("acdc", 4, "0, 1, 2, 3"), ("hvsmr", 3, "0, 1, 2"), ("acdc", 1.5, "0, 1, 2, 3"), ("nifti", -1, "0 to 254")],
)
def test_labels_that_are_no_class_are_refused(tmp_path, anatomy, value, allowed):
    label = np.zeros((8, 8, 3))
    label[3, 3, 1] = value
    with pytest.raises(DataError, match=rf"p_gt\.nii\.gz: .*value {value}, but allowed are .*{allowed}"):
        Preprocessor(8, 1.5).label(label, volume(tmp_path, anatomy=anatomy), label.shape)
    with pytest.raises(DataError, match=r"p_gt\.nii\.gz: .*shape"):
        Preprocessor(8, 1.5).label(label, volume(tmp_path), (8, 8, 4))
