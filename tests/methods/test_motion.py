"""Motion maps by hand, and a network that learns to predict them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from fclseg.errors import DataError
from fclseg.methods.motion import motion_maps
from fclseg.methods.registry import build_method
from fclseg.methods.training import make_optimizer, train_round
from fclseg.presets import get_preset

PRESET = get_preset("demo")


def volume(patient, start, stop):
    return SimpleNamespace(patient=patient, start=start, stop=stop)


def store_of(images, *volumes):
    return SimpleNamespace(images=images, volumes=list(volumes))


def test_two_frames_give_their_absolute_difference():
    images = np.random.default_rng(0).random((4, 8, 8)).astype(np.float16)
    maps = motion_maps(store_of(images, volume("a", 0, 2), volume("a", 2, 4)))
    exact = images.astype(np.float32)
    blurred = np.stack([gaussian_filter(np.abs(exact[z] - exact[z + 2]), 1) for z in range(2)])
    expected = np.minimum(blurred / np.percentile(blurred, 99), 1)
    np.testing.assert_allclose(maps[:2], expected, rtol=1e-5)
    np.testing.assert_array_equal(maps[:2], maps[2:])


def test_more_frames_give_the_range_over_the_cycle_and_still_tissue_none():
    images = np.zeros((3, 8, 8), dtype=np.float16)
    images[:, 4, 4] = 0.2, 0.9, 0.5
    maps = motion_maps(store_of(images, *(volume("a", z, z + 1) for z in range(3))))
    assert maps[0].argmax() == 4 * 8 + 4 and maps[0, 0, 0] < 1e-3
    np.testing.assert_array_equal(maps[0], maps[2])


def test_a_patient_with_one_frame_has_no_map():
    images = np.ones((3, 4, 4), dtype=np.float16)
    maps = motion_maps(store_of(images, volume("a", 0, 1), volume("b", 1, 2), volume("b", 2, 3)))
    assert np.isnan(maps[0]).all() and not np.isnan(maps[1:]).any()


def test_a_site_without_any_cycle_is_told_what_is_missing():
    images = np.ones((2, 4, 4), dtype=np.float16)
    sampler = SimpleNamespace(store=store_of(images, volume("a", 0, 1), volume("b", 1, 2)), indices=np.arange(2))
    with pytest.raises(DataError, match="at least ED and ES"):
        build_method("motion", PRESET, 0).begin_round(sampler, 0, torch.Generator())


def test_training_lowers_the_loss(make_sampler):
    method = build_method("motion", PRESET, 0)
    sampler, optimizer = make_sampler(method), make_optimizer(method)
    losses = [
        train_round(method, sampler, optimizer, lr=2e-3, epochs=2, seed=0, site="s", round_number=number).loss
        for number in range(4)
    ]
    assert losses[-1] < losses[0]
