"""Fixtures for the tests of whole runs."""

import pytest
from inprocess import SITES

from fclseg.phantom.dataset import write_phantom


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Three small hospitals of different sizes."""
    folders = {site: tmp_path_factory.mktemp(site) / "data" for site in SITES}
    for number, folder in enumerate(folders.values()):
        write_phantom(folder, patients=1 + number, frames=2, seed=number)
    return folders


@pytest.fixture
def own_slots(tmp_path, monkeypatch):
    """Training slots for this test only, so that it does not wait for other trainings on this machine."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FCLSEG_DEVICE", "cpu")
