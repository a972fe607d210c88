"""Training on a stream of phantoms: what a batch is, and that an interruption changes nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from fclseg.finetune import phantom_training
from fclseg.finetune.phantom_stream import PhantomStream, phantom_windows
from fclseg.finetune.phantom_training import Schedule, train_on_phantoms
from fclseg.methods.labelled_loss import soft_dice
from fclseg.networks.freezable import FreezableUNet
from fclseg.phantom.heart import LV, MYO

SIZE, PIXEL = 24, 7.0


def stream() -> PhantomStream:
    return PhantomStream(3, SIZE, PIXEL, batch_size=4, first=2, every=2, most=3)


def network() -> FreezableUNet:
    return FreezableUNet((2, 4), 4, seed=1, patch=2)


def test_windows_show_the_heart_with_its_labels():
    images, labels = phantom_windows(3, 1, 64, 3.0)
    assert images.shape == labels.shape and len(images) % 2 == 0 and images.dtype == np.float16
    assert images.min() >= 0 and images.max() <= 1
    ventricle = labels[: len(labels) // 2].max(axis=0)
    x, y = np.argwhere(ventricle > 0).mean(axis=0)
    assert abs(x - 31.5) * 3 < 25 and abs(y - 31.5) * 3 < 25  # the heart is in the middle, up to the jitter
    assert np.median(images[labels == LV]) > np.median(images[labels == MYO])


def test_a_batch_follows_from_its_step_alone():
    one, other = stream(), stream()
    for step in range(5):
        one.batch(step)
    images, labels = one.batch(5)
    again, same = other.batch(5)
    assert torch.equal(images, again) and torch.equal(labels, same)
    assert set(one._patients) == set(other._patients) == {2, 3, 4}
    assert not torch.equal(images, one.batch(6)[0])


def test_soft_dice_by_hand():
    truth = one_hot(torch.tensor([[[0, 1], [1, 2]]]), 3).movedim(-1, 1)
    assert soft_dice(truth * 100.0, truth).item() == pytest.approx(0, abs=1e-6)
    wrong = torch.tensor([100.0, 0, 0]).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    assert soft_dice(wrong, truth).item() == pytest.approx(1 - (1 / 3 + 1 / 2) / 2, abs=1e-6)  # smoothed by one pixel


def test_the_rate_rises_stays_and_falls():
    schedule = Schedule(steps=1000, decay=200, lr=0.1)
    assert schedule.rate(0) == pytest.approx(0.001) and schedule.rate(500) == 0.1
    assert schedule.rate(900) == pytest.approx(0.05) and schedule.rate(999) == pytest.approx(0.0005)
    assert not schedule.settles(800) and schedule.settles(801)


def test_interrupted_and_continued_equals_uninterrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(phantom_training, "SAVE_EVERY", 3)
    schedule = Schedule(steps=8, decay=3, middle=3, lr=1e-2)
    whole = train_on_phantoms(network(), stream(), schedule, tmp_path / "whole.pt").state_dict()
    broken = stream()
    batch = broken.batch

    def killed(step):
        if step == 5:
            raise KeyboardInterrupt
        return batch(step)

    broken.batch = killed
    with pytest.raises(KeyboardInterrupt):
        train_on_phantoms(network(), broken, schedule, tmp_path / "state.pt")
    middle = torch.load(tmp_path / "state.pt", weights_only=True)["average"]  # after three steps
    again = train_on_phantoms(network(), stream(), schedule, tmp_path / "state.pt").state_dict()
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert not (tmp_path / "state.pt").exists()
    end = train_on_phantoms(network(), stream(), replace(schedule, middle=None), tmp_path / "end.pt").state_dict()
    for name in (name for name in whole if whole[name].is_floating_point()):
        torch.testing.assert_close(whole[name], (middle[name] + end[name]) / 2)
    fresh = network().state_dict()
    assert not torch.equal(whole["encoder.stem.conv_0.conv.weight"], fresh["encoder.stem.conv_0.conv.weight"])
