"""A real startup kit, made by ``nvflare provision``."""

import shutil
import sys
from pathlib import Path

import pytest

from fclseg.flare.kits.kit import Kit
from fclseg.phantom.dataset import write_phantom

sys.path.append(str(Path(__file__).parents[2] / "poc"))  # the federation of the proof of concept, which makes kits


@pytest.fixture(scope="session")
def federation(tmp_path_factory):
    from parties import Federation

    made = Federation(tmp_path_factory.mktemp("federation"))
    made.provision()
    return made


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "data"
    write_phantom(folder, patients=2, frames=2)
    return folder


@pytest.fixture
def kit(federation, images, tmp_path):
    """A hospital's own copy of its kit, with its image folder set."""
    shutil.copytree(federation.kit("site-1"), tmp_path / "kit")
    kit = Kit(tmp_path / "kit")
    kit.set_data(images)
    return kit
