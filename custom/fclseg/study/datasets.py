"""The images of a study: the user's folder or a phantom, split into sites and folds, with a fingerprint of both."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from fclseg.data.phantom import phantom_sites, write_phantom
from fclseg.data.sites import Splits
from fclseg.data.volumes import read_folder
from fclseg.errors import DataError
from fclseg.study.cells import Dataset

FOLDS = 5
HEAD_BYTES = 1 << 16
PLAIN_AS = "acdc"
"""Whose structures a plain folder's labels name (1 RV, 2 MYO, 3 LV), as for the bundle."""


def fingerprint(files: list[Path], root: Path, splits: Splits) -> str:
    """A hash of names, sizes and beginnings of all image files and of the split: cheap even for gigabytes of images."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        with open(path, "rb") as stream:
            digest.update(stream.read(HEAD_BYTES))
    digest.update(json.dumps([splits.sites, splits.held_out], sort_keys=True).encode())
    return digest.hexdigest()[:20]


def open_dataset(
    root: Path, out: Path, *, sites: int | Mapping[str, str], splits: Path | None = None, seed: int = 0
) -> Dataset:
    """A folder of images with its split: the given file, or one that is made once and kept in the study's folder."""
    root = Path(root).absolute()
    volumes = read_folder(root)
    patients = sorted({volume.patient for volume in volumes})
    labelled = {volume.patient for volume in volumes if volume.label is not None}
    if splits is None:
        number = sites if isinstance(sites, int) else len(set(sites.values()))
        splits = out / "splits" / f"{root.name}-{number}-sites-seed{seed}.json"
        if not splits.exists():
            Splits.make(patients, sites, folds=FOLDS, seed=seed).save(splits)
    split = Splits.load(splits)
    split.check_patients(patients, str(splits))
    if without := sorted(set(split.patients) - labelled):
        raise DataError(
            f"{root}: patient {without[0]} has no labels, but a study fine-tunes and validates on every one"
        )
    files = {path for volume in volumes for path in (volume.image, volume.label) if path is not None}
    layout = PLAIN_AS if volumes[0].layout == "nifti" else volumes[0].layout
    return Dataset(root, layout, Path(splits).absolute(), fingerprint(sorted(files), root, split))


def phantom_dataset(layout: str, out: Path, *, sites: int, patients: int, seed: int = 0) -> Dataset:
    """A phantom data set in the study's folder, written once; each site has a scanner of its own."""
    name = f"phantom-{layout}-{sites}x{patients}-seed{seed}"
    root = out / "data" / name
    if not root.exists():
        print(f"no data given: writing a phantom of {sites * patients} patients to {root}", flush=True)
        write_phantom(root, layout=layout, patients=sites * patients, seed=seed, sites=sites)
    if layout != "acdc":
        return open_dataset(root, out, sites=sites, seed=seed)
    scanners = phantom_sites(sites * patients, sites)
    return open_dataset(root, out, sites={name: site for site, names in scanners.items() for name in names}, seed=seed)
