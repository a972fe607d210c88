"""Supervised training shows the network what inference will show it: windows around the heart."""

from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from torch import nn

from fclseg.anatomy.records import Volume
from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.preprocess import UNLABELLED
from fclseg.data.slices import open_store
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import TrainedModel
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


def stored(volume, cache, around_labels):
    return open_store([volume], image_size=64, spacing=3.0, around_labels=around_labels, cache=cache, progress=False)


def test_slices_for_training_are_the_windows_of_inference(volume, tmp_path):
    store = stored(volume, tmp_path / "cache", around_labels=True)
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
    store = stored(volume, tmp_path / "cache", around_labels=True)
    assert (store.labels[3] == UNLABELLED).all()
    for plane in store.labels[:3]:
        np.testing.assert_allclose(np.argwhere(plane == 3).mean(axis=0), 31.5, atol=0.6)
        assert (plane == 3).sum() * 9 == pytest.approx(np.pi * 15**2, rel=0.06)


def test_bright_fat_far_away_does_not_darken_the_heart(volume, tmp_path):
    near, whole = (stored(volume, tmp_path / "cache", around) for around in (True, False))
    assert np.median(near.images[near.labels == 3]) > 0.8 > 0.4 > np.median(whole.images[whole.labels == 3])


def test_organs_that_are_not_compact_are_shown_whole(volume, tmp_path):
    spread = replace(volume, anatomy=ANATOMIES["hvsmr"], label=None)
    np.testing.assert_array_equal(*(stored(spread, tmp_path / "c", around).images for around in (True, False)))


def test_only_the_standard_network_is_trained_on_windows():
    assert {name for name, preset in PRESETS.items() if preset.images.around_labels} == {"standard"}
