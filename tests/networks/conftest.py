"""One small site of phantom patients for networks that are trained."""

import pytest

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import open_store
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset


@pytest.fixture(scope="module")
def phantom_sampler(tmp_path_factory):
    """A sampler over all slices that brings what the given method wants."""
    root, images = tmp_path_factory.mktemp("networks"), get_preset("demo").images
    write_phantom(root / "data", patients=2, frames=2)
    spacing = images.spacing(ANATOMIES["acdc"])
    store = open_store(
        read_folder(root / "data"), image_size=images.size, spacing=spacing, cache=root / "cache", progress=False
    )

    def make(method):
        indices = store.select(labelled=True if method.wants_labels else None)
        wants = {"partners": method.wants_partners, "labels": method.wants_labels}
        return SliceSampler(store, indices, method.preset.pretraining.batch_size, **wants)

    return make
