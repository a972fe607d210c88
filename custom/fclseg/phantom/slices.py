"""Phantom patients as slices to train on, made once per machine and kept in the same cache as other slices."""

import hashlib
from pathlib import Path

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.folders import read_folder
from fclseg.data.place import AroundLabels
from fclseg.data.slices import SliceStore, default_cache, open_store
from fclseg.data.store_files import store_lock
from fclseg.errors import DataError
from fclseg.phantom import body, dataset, family, heart, plane, right_ventricle, scanner, vessels
from fclseg.presets.settings import ImageSettings

SEED = 5309
"""Seed of the patients and scanners that networks are trained on. Demos, studies and tests use other seeds."""

FRAMES = 2
"""End-diastole and end-systole: the labelled frames."""


def phantom_folder(anatomy: Anatomy, patients: int, seed: int = SEED, cache: Path | None = None) -> Path:
    """A data set of ``patients`` phantom patients, each on its own scanner. Written once."""
    if anatomy.name not in dataset.WRITERS:
        known = ", ".join(dataset.WRITERS)
        raise DataError(f"there is no phantom for '{anatomy.name}': training on phantoms is possible for {known}")
    folder = (cache or default_cache()) / f"phantom-{anatomy.name}-{patients}-{seed}-{_version()}"
    with store_lock(folder):
        if not folder.exists():
            dataset.write_phantom(folder, anatomy.name, patients, seed, sites=patients, frames=FRAMES)
    return folder


def phantom_slices(
    anatomy: Anatomy, images: ImageSettings, patients: int, seed: int = SEED, cache: Path | None = None
) -> SliceStore:
    """The labelled slices of that data set."""
    folder = phantom_folder(anatomy, patients, seed, cache)
    labelled = [volume for volume in read_folder(folder, anatomy.name) if volume.label is not None]
    spacing = images.spacing(anatomy)
    around = AroundLabels() if images.windows else None
    return open_store(labelled, image_size=images.size, spacing=spacing, around=around, cache=cache, progress=False)


def _version() -> str:
    """A hash of the phantom's code, so that a cache never contains patients of an earlier phantom."""
    modules = (dataset, body, family, heart, plane, right_ventricle, scanner, vessels)
    content = b"".join(Path(str(module.__file__)).read_bytes() for module in modules)
    return hashlib.sha256(content).hexdigest()[:12]
