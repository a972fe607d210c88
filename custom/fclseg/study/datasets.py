"""The images of a study: the user's folder or a phantom, split into sites and folds, with a fingerprint of both."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume
from fclseg.anatomy.registry import ANATOMIES, DEFAULT
from fclseg.data.hospitals import sites_by
from fclseg.data.sites import Splits
from fclseg.errors import DataError
from fclseg.phantom.dataset import phantom_sites, write_phantom
from fclseg.phantom.family import UNSEEN
from fclseg.study.cells import Dataset

FOLDS = 5
FEWEST_FOLDS = 2
HEAD_BYTES = 1 << 16
PHANTOM = "phantom-"
POOLED_NOTE = "all data in one place"


def fingerprint(volumes: Sequence[Volume], root: Path, splits: Splits) -> str:
    """A hash of the split, the names and sizes of all files, the first bytes of the images and the whole label maps.

    This is fast even for gigabytes of images. Label maps are hashed completely because they are small, and people
    correct single voxels in them.
    """
    labels = {volume.label for volume in volumes if volume.label is not None}
    digest = hashlib.sha256()
    for path in sorted({volume.image for volume in volumes} | labels):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        with open(path, "rb") as stream:
            digest.update(stream.read() if path in labels else stream.read(HEAD_BYTES))
    parts = [splits.sites, splits.held_out, splits.outside]
    digest.update(json.dumps(parts, sort_keys=True).encode())
    return digest.hexdigest()[:20]


def prepare_dataset(
    root: Path,
    out: Path,
    *,
    sites: int | str | Mapping[str, str],
    splits: Path | None = None,
    seed: int = 0,
    hold_out: str | None = None,
) -> Dataset:
    """A folder of images with its split: the given file, or a split that is made once and kept in the study's folder.

    ``sites`` is a number, a mapping patient -> site, or what sites are made by (``data.hospitals.sites_by``). The site
    ``hold_out`` takes part in nothing and is scored in every fold. Patients without labels take part in pre-training
    only. Folds and labelled subsets contain labelled patients.
    """
    root = Path(root).absolute()
    volumes = read_folder(root)
    patients = sorted({volume.patient for volume in volumes})
    labelled = {volume.patient for volume in volumes if volume.label is not None}
    if splits is None:
        chosen = sites_by(root, volumes, sites) if isinstance(sites, str) else sites
        splits = _kept_split(root.name, out, patients, labelled, chosen, seed)
    split = Splits.load(splits)
    if hold_out is not None:
        split = split.without(hold_out)
        splits = out / "splits" / f"{Path(splits).stem}-without-{hold_out}.json"
        split.save(splits)
    split.check_patients(patients, str(splits))
    held_out = {patient for fold in range(split.folds) for patient in split.validation(fold)}
    if without := sorted(held_out - labelled):
        raise DataError(
            f"{root}: patient {without[0]} has no labels, but a fold of {splits} holds it out: make a new split "
            "with 'fclseg data split'"
        )
    found = volumes[0].anatomy
    # A plain folder without labels.json has the default labels, as in the bundle.
    anatomy = found if found.structures else ANATOMIES[DEFAULT]
    return Dataset(root, anatomy, Path(splits).absolute(), fingerprint(volumes, root, split))


def pooled_dataset(data: Dataset, out: Path) -> Dataset:
    """The same images with all patients at one site."""
    path = out / "splits" / f"{data.splits.stem}-pooled.json"
    Splits.load(data.splits).pooled().save(path)
    return replace(prepare_dataset(data.root, out, sites=1, splits=path), note=POOLED_NOTE)


def _kept_split(
    name: str, out: Path, patients: list[str], labelled: set[str], sites: int | Mapping[str, str], seed: int
) -> Path:
    """The split file of these patients in the study's folder. Other patients in a folder of this name get another."""
    number = sites if isinstance(sites, int) else len(set(sites.values()))
    fewest = len(labelled) // number
    if not isinstance(sites, int):  # hospitals differ in size
        fewest = min(sum(sites[one] == site for one in labelled if one in sites) for site in set(sites.values()))
    folds = min(FOLDS, max(FEWEST_FOLDS, fewest))
    known = [patients, sorted(labelled), *([] if isinstance(sites, int) else [sorted(sites.items())])]
    who = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:8]
    path = out / "splits" / f"{name}-{number}-sites-seed{seed}-{who}.json"
    if not path.exists():
        unlabelled = [patient for patient in patients if patient not in labelled]
        Splits.make(patients, sites, folds=folds, seed=seed, unlabelled=unlabelled).save(path)
    return path


def phantom_dataset(anatomy: str, out: Path, *, sites: int, patients: int, seed: int = 0) -> Dataset:
    """A phantom data set in the study's folder, written once. Each site has its own scanner. Hearts and scanners are of
    a family that no shipped network was trained on."""
    name = f"{PHANTOM}{anatomy}-{UNSEEN}-{sites}x{patients}-seed{seed}"
    root = out / "data" / name
    if not root.exists():
        print(f"no data given: writing a phantom of {sites * patients} patients to {root}", flush=True)
        write_phantom(root, anatomy, patients=sites * patients, seed=seed, sites=sites, family=UNSEEN)
    if anatomy != "acdc":
        return prepare_dataset(root, out, sites=sites, seed=seed)
    scanners = phantom_sites(sites * patients, sites)
    return prepare_dataset(
        root, out, sites={name: site for site, names in scanners.items() for name in names}, seed=seed
    )
