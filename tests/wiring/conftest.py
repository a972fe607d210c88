"""Small hospitals as real files, each written once."""

import pytest

from fclseg.phantom.dataset import write_phantom


@pytest.fixture(scope="session")
def hospitals(tmp_path_factory):
    """Two hospitals of different sizes, each with its own folder."""
    folders = {name: tmp_path_factory.mktemp(name) / "data" for name in ("site-1", "site-2")}
    for number, folder in enumerate(folders.values()):
        write_phantom(folder, patients=1 + number, frames=2, seed=number)
    return folders


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """Six patients with a cycle of four frames, two of them labelled, in one folder, as a simulation has it."""
    folder = tmp_path_factory.mktemp("shared") / "data"
    write_phantom(folder, patients=6, frames=4, seed=7)
    return folder


@pytest.fixture(autouse=True)
def alone_on_the_cpu(tmp_path, monkeypatch):
    """Separate training slots, so that a run does not wait for other trainings on this machine."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FCLSEG_DEVICE", "cpu")
