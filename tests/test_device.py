"""The choice of the device, shared by pre-training and the bundles."""

import pytest
import torch

from fclseg.device import choose_device
from fclseg.errors import FCLSegError


@pytest.mark.parametrize(("gpus", "expected"), [(0, "cpu"), (2, "cuda:0")])
def test_a_gpu_is_taken_when_there_is_one(monkeypatch, gpus, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert choose_device() == torch.device(expected)
    assert choose_device("cpu") == torch.device("cpu")


def test_a_gpu_can_be_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda:1") and choose_device("cuda") == torch.device("cuda")


@pytest.mark.parametrize("name", ["cuda:2", "cuda:-1", "gpu", "meta", "cpu:1", "cuda:x"])
def test_a_device_that_is_not_there_is_one_sentence(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(FCLSegError, match=rf"no device '{name}' on this machine \(2 GPUs\): set FCLSEG_DEVICE"):
        choose_device(name)
