"""The round loop with everything real but the wire: who is asked, what is written down, and what sites remember."""

import numpy as np
import pytest
import torch
from inprocess import InProcess

from fclseg.data.phantom import write_phantom

SITES = ("site-1", "site-2", "site-3")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three small hospitals of different sizes."""
    folders = {site: tmp_path_factory.mktemp(site) / "data" for site in SITES}
    for number, folder in enumerate(folders.values()):
        write_phantom(folder, patients=1 + number, frames=2, seed=number)
    return folders


@pytest.fixture
def start(tmp_path, data, monkeypatch):
    """Start a run; its training slots are its own, so that it does not wait for other trainings on this machine."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FCLSEG_DEVICE", "cpu")
    return lambda job, **settings: InProcess(tmp_path / job, data, job, **settings)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("job", ["fclopt_dp", "fcl", "fedu", "fedca", "fedgl", "fedswav", "finetune_federated"])
def test_two_rounds_on_a_gpu(start, monkeypatch, job):
    monkeypatch.setenv("FCLSEG_DEVICE", "cuda")
    run = start(job, rounds=2)
    for record in run.complete():
        assert {report["status"] for report in record["sites"].values()} == {"ok"} and np.isfinite(record["loss"])
    assert {tensor.device.type for tensor in run.state("site-1", 1).values()} == {"cpu"}
