"""One small site of phantom patients for the tests of methods."""

import pytest

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import open_store
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset


@pytest.fixture(scope="session", autouse=True)
def phantom_cache(tmp_path_factory):
    """Methods that train on phantoms generate them in the cache; here the cache is a folder of the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCLSEG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def phantom_store(tmp_path_factory):
    """Slices of three patients at ``demo`` size."""
    root, preset = tmp_path_factory.mktemp("methods"), get_preset("demo")
    write_phantom(root / "data", patients=3, frames=2)
    volumes = read_folder(root / "data")
    spacing = preset.images.spacing(ANATOMIES["acdc"])
    return open_store(volumes, image_size=preset.images.size, spacing=spacing, cache=root / "cache", progress=False)


@pytest.fixture
def make_sampler(phantom_store):
    """A sampler over all slices that brings what the given method wants."""

    def make(method):
        indices = phantom_store.select(labelled=True if method.wants_labels else None)
        wants = {"partners": method.wants_partners, "labels": method.wants_labels}
        return SliceSampler(phantom_store, indices, method.preset.pretraining.batch_size, **wants)

    return make
