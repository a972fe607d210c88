"""Images on which outlines are guesses: noise as strong as the contrast, and inverted grey values."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fclseg.anatomy.families.acdc import ANATOMY
from fclseg.anatomy.records import Volume
from fclseg.inference.measure import measure
from fclseg.inference.quality import contrast_to_noise
from fclseg.inference.segment import Segmentation, Segmenter
from fclseg.networks.model_file import TrainedModel

LV, MYO = (ANATOMY.structure(name).value for name in ("LV", "MYO"))
NOISY, INVERTED = "the image may be too noisy", "its grey values may be inverted"


CENTRE = (30, 28)


def ring(noise, blood=0.8, wall=0.4, size=(64, 60), centre=CENTRE):
    """Labels and grey values [S, X, Y] of a shaded ring around a disc."""
    x, y = np.meshgrid(*map(np.arange, size), indexing="ij")
    distance = np.hypot(x - centre[0], y - centre[1])
    plane = np.where(distance < 12, LV, np.where(distance < 20, MYO, 0))
    labels = np.repeat(plane[None], 5, axis=0)
    grey = np.select([labels == LV, labels == MYO], [blood, wall], 0.1) + 0.002 * x + 0.001 * y
    return labels, grey + np.random.default_rng(0).normal(0, noise, labels.shape)


@pytest.mark.parametrize(("noise", "known"), [(0.1, 4.0), (0.2, 2.0), (0.4, 1.0)])
def test_the_contrast_is_measured_in_standard_deviations_of_the_noise(noise, known):
    """Shading does not count as noise, and edges hardly do."""
    assert contrast_to_noise(*ring(noise), ANATOMY) == pytest.approx(known, rel=0.12)
    assert contrast_to_noise(*ring(noise, blood=0.4, wall=0.8), ANATOMY) == pytest.approx(-known, rel=0.12)


def test_edges_alone_do_not_make_an_image_noisy():
    assert contrast_to_noise(*ring(0.01), ANATOMY) > 10


def test_without_a_heart_or_noise_there_is_no_contrast():
    labels, grey = ring(0.1)
    assert contrast_to_noise(np.zeros_like(labels), grey, ANATOMY) is None
    assert contrast_to_noise(np.where(labels == LV, LV, 0), grey, ANATOMY) is None
    assert contrast_to_noise(labels, (labels == LV).astype(float), ANATOMY) is None


def flags(**found):
    labels = np.moveaxis(ring(0.0)[0], 0, -1).astype(np.uint8)
    who = {"patient": "a", "phase": "ED", "image": "a.nii.gz", "frame": None}
    return measure(Segmentation(labels, **found), (1.5, 1.5, 8.0), ANATOMY, **who).flags


@pytest.mark.parametrize(
    ("found", "sentence", "flagged"),
    [
        ({"contrast": 2.9}, NOISY, True), ({"contrast": -20.0}, NOISY, True), ({"contrast": 3.1}, NOISY, False),
        ({"contrast": None}, NOISY, False), ({"median_grey": 0.51}, INVERTED, True),
        ({"median_grey": 0.49}, INVERTED, False), ({"median_grey": None}, INVERTED, False),
    ],
)  # fmt: skip
def test_poor_images_are_flagged(found, sentence, flagged):
    assert any(flag.endswith(sentence) for flag in flags(**found)) == flagged


class AlwaysARing(nn.Module):
    """Outlines the same heart in the middle of every window."""

    def forward(self, images):
        sides = tuple(images.shape[2:])
        labels = torch.from_numpy(ring(0.0, size=sides, centre=tuple(side // 2 for side in sides))[0][0]).long()
        return nn.functional.one_hot(labels, ANATOMY.classes).movedim(-1, 0)[None].expand(len(images), -1, -1, -1) * 9.0


@pytest.mark.parametrize(
    ("noise", "sign", "expected"), [(0.02, 1, set()), (0.5, 1, {NOISY}), (0.02, -1, {INVERTED, NOISY})]
)
def test_the_segmenter_measures_both_on_the_image_it_was_given(noise, sign, expected):
    grey = np.moveaxis(sign * ring(noise)[1], 0, -1)
    volume = Volume("a", None, None, Path("a.nii.gz"), None, (1.5, 1.5, 8.0), ANATOMY)
    segmenter = Segmenter(TrainedModel(AlwaysARing(), ANATOMY, 61, 1.5, "demo"), refined=False)
    found = segmenter(grey, volume, near=CENTRE)
    flagged = measure(found, volume.spacing, ANATOMY, patient="a", phase=None, image="a", frame=None).flags
    assert {one for one in (NOISY, INVERTED) if any(flag.endswith(one) for flag in flagged)} == expected
