"""A small phantom data set, written once, and slices that are cached next to it."""

import pytest

from fclseg.phantom.dataset import write_phantom


@pytest.fixture(scope="session")
def phantom(tmp_path_factory):
    """Four patients in the ACDC layout."""
    folder = tmp_path_factory.mktemp("phantom") / "acdc"
    write_phantom(folder, "acdc", patients=4, seed=3, frames=2)
    return folder


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCLSEG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
