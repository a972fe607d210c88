"""Training shows a network that segments what inference will show it: windows around the heart."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pytest
import torch
from torch import nn

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume
from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.place import AroundLabels
from fclseg.data.preprocess import UNLABELLED
from fclseg.data.slices import open_store
from fclseg.inference.find import shipped_finder
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import TrainedModel
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import PRESETS

HEART, SPACING, PLACE = ANATOMIES["acdc"], (1.5, 1.5, 8.0), (95, 40)


class Nothing(nn.Module):
    """A network that finds nothing, so that a window stays where it is."""

    def forward(self, images):
        return torch.cat([torch.ones_like(images), torch.zeros_like(images).expand(-1, 3, -1, -1)], dim=1)


@pytest.fixture
def volume(tmp_path):
    """A heart far from the centre of a padded image, a bright chest wall on the other side, one slice not labelled."""
    x, y = np.meshgrid(np.arange(150), np.arange(140), indexing="ij")
    away = np.hypot(x - PLACE[0], y - PLACE[1])
    labels = np.repeat(np.select([away < 10, away < 16], [3, 2], 0)[..., None], 4, axis=2).astype(np.uint8)
    labels[..., 3] = UNLABELLED
    image = np.select([away < 10, away < 16], [900, 300], 100)[..., None] + np.random.default_rng(0).normal(
        0, 9, (150, 140, 4)
    )
    image[x + y > 260] = 5000
    padded = [np.pad(part, ((20, 0), (0, 30), (0, 0))) for part in (image.astype(np.int16), labels)]
    for name, part in zip(("image", "label"), padded, strict=True):
        nib.save(nib.Nifti1Image(part, np.diag([*SPACING, 1.0])), tmp_path / f"{name}.nii.gz")
    return Volume("p", 1, "ED", tmp_path / "image.nii.gz", tmp_path / "label.nii.gz", SPACING, HEART)


def stored(volume, cache, around):
    return open_store([volume], image_size=64, spacing=3.0, around=around, cache=cache, progress=False)


def test_slices_for_training_are_the_windows_of_inference(volume, tmp_path):
    store = stored(volume, tmp_path / "cache", AroundLabels())
    segmenter = Segmenter(TrainedModel(Nothing(), HEART, 64, 3.0, "standard"), refined=False)
    voxels = np.asarray(nib.load(volume.image).dataobj, dtype=np.float32)
    np.testing.assert_allclose(store.images.astype(np.float32), windows_of(segmenter, voxels, volume), atol=1e-3)


def windows_of(segmenter, voxels, volume):
    """The first view of all slices that the network is asked about."""
    asked = []
    predict = segmenter._probabilities
    segmenter._probabilities = lambda images: (asked.append(images), predict(images))[1]
    segmenter(voxels, volume, (PLACE[0] + 20, PLACE[1]))
    return next(images for images in asked[1:] if len(images) == 4)[:, 0].numpy()


def test_labels_are_in_the_middle_and_what_nobody_labelled_stays_unlabelled(volume, tmp_path):
    store = stored(volume, tmp_path / "cache", AroundLabels())
    assert (store.labels[3] == UNLABELLED).all()
    for plane in store.labels[:3]:
        np.testing.assert_allclose(np.argwhere(plane == 3).mean(axis=0), 31.5, atol=0.6)
        assert (plane == 3).sum() * 9 == pytest.approx(np.pi * 15**2, rel=0.06)


def test_bright_fat_far_away_does_not_darken_the_heart(volume, tmp_path):
    near, whole = (stored(volume, tmp_path / "cache", around) for around in (AroundLabels(), None))
    assert np.median(near.images[near.labels == 3]) > 0.8 > 0.4 > np.median(whole.images[whole.labels == 3])


def test_organs_that_are_not_compact_are_shown_whole(volume, tmp_path):
    spread = replace(volume, anatomy=ANATOMIES["hvsmr"], label=None)
    np.testing.assert_array_equal(*(stored(spread, tmp_path / "c", around).images for around in (AroundLabels(), None)))


def test_without_labels_slices_show_what_the_shipped_network_takes_for_the_heart(tmp_path):
    """Labels only check it: they are not in the store's volume. The heart is 30 mm from the middle of the image."""
    patient = phantom_patient(tmp_path / "data")
    shifted = moved(patient, tmp_path, (20, -14))
    finder = shipped_finder(HEART, "cpu")
    assert finder is not None
    place = AroundLabels()(np.zeros(1), shifted)
    unlabelled = replace(shifted, label=None)
    voxels = np.asarray(nib.load(shifted.image).dataobj, dtype=np.float32)
    np.testing.assert_allclose(finder(voxels, unlabelled), place, atol=5)
    store = open_store([unlabelled], image_size=128, spacing=1.5, around=finder, cache=tmp_path / "c", progress=False)
    assert (store.labels == UNLABELLED).all()
    same = open_store(
        [shifted], image_size=128, spacing=1.5, around=At(finder(voxels, shifted)), cache=tmp_path / "c", progress=False
    )
    np.testing.assert_array_equal(store.images, same.images)
    np.testing.assert_allclose(np.argwhere(same.labels > 0)[:, 1:].mean(axis=0), 63.5, atol=5)


def test_frames_of_one_file_share_the_place_of_the_first(volume):
    finder = shipped_finder(HEART, "cpu")
    asked = []
    finder._segmenter = SimpleNamespace(locate=lambda voxels, one: asked.append(one.frame) or (7, 8))
    frames = [replace(volume, frame=frame) for frame in (1, 2)]
    assert [finder(np.zeros(1), frame) for frame in frames] == [(7, 8), (7, 8)]
    finder(np.zeros(1), replace(volume, image=volume.label))
    assert asked == [1, 1]


@pytest.mark.parametrize("name", ["hvsmr", "nifti"])
def test_nothing_is_searched_without_a_compact_organ_and_its_network(name):
    assert shipped_finder(ANATOMIES[name], "cpu") is None


@dataclass
class At:
    """A known place."""

    place: tuple[int, int]
    key = "known"

    def __call__(self, voxels, volume):
        return self.place


def phantom_patient(folder):
    write_phantom(folder, patients=1, frames=2, seed=3)
    return next(volume for volume in read_folder(folder) if volume.label)


def moved(volume, folder, by):
    """The patient's first labelled frame, shifted in plane."""
    parts = []
    for name, path in (("image", volume.image), ("label", volume.label)):
        image = nib.load(path)
        voxels = np.asarray(image.dataobj)
        if voxels.ndim == 4:
            voxels = voxels[..., volume.time_index]
        nib.save(nib.Nifti1Image(np.roll(voxels, by, axis=(0, 1)), image.affine), folder / f"moved_{name}.nii.gz")
        parts.append(folder / f"moved_{name}.nii.gz")
    return replace(volume, image=parts[0], label=parts[1], time_index=None)


def test_only_the_standard_network_is_trained_on_windows():
    assert {name for name, preset in PRESETS.items() if preset.images.windows} == {"standard"}
