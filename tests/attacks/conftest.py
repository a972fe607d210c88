"""Slices of phantom patients and an untrained network: its features tell about images, too."""

import pytest
from untrained import PRESET

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.slices import open_store
from fclseg.methods.registry import build_method
from fclseg.phantom.dataset import write_phantom

PATIENTS = 6


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("attacks")
    write_phantom(root / "data", patients=PATIENTS, frames=2)
    spacing = PRESET.images.spacing(ANATOMIES["acdc"])
    volumes = read_folder(root / "data")
    return open_store(volumes, image_size=PRESET.images.size, spacing=spacing, cache=root / "cache", progress=False)


@pytest.fixture
def method():
    return build_method("fcl", PRESET, 0)


@pytest.fixture
def halves(store):
    """The attacker's patients and the victims."""
    return store.patients[: PATIENTS // 2], store.patients[PATIENTS // 2 :]
