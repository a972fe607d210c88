"""Data sets from Python, the same as ``fclseg data``: write a phantom, check, import and split."""

import csv
from pathlib import Path

from fclseg.anatomy.folders import AUTO, read_folder
from fclseg.data import hospitals
from fclseg.data.assignment import read_assignment
from fclseg.data.check import FolderReport, check_folder
from fclseg.data.hospitals import join_folders
from fclseg.data.sites import Splits
from fclseg.dicom.importing import Imported, import_folder
from fclseg.errors import DataError
from fclseg.phantom.dataset import scanner_of, write_phantom

__all__ = ["Imported", "check", "import_dicom", "join", "phantom", "split"]

SITES = 10
"""The paper's number of sites."""

SITE_TABLE = "sites.csv"
"""Which of a phantom's scanners imaged each patient."""


def phantom(
    out: Path | str,
    anatomy: str = "acdc",
    *,
    patients: int = 10,
    sites: int = 1,
    seed: int = 0,
    family: str = "seen",
) -> list[Path]:
    """Write synthetic patients, one path each. With several ``sites`` (scanners), ``sites.csv`` says who is where."""
    paths = write_phantom(out, anatomy, patients, seed, sites, family=family)
    if sites > 1:
        volumes = read_folder(out, anatomy)
        patient_of = {path: volume.patient for volume in volumes for path in (volume.image, volume.image.parent)}
        names = [f"site-{scanner_of(number, sites) + 1}" for number in range(1, len(paths) + 1)]
        with open(Path(out) / SITE_TABLE, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(("patient", "site"))
            csv.writer(file).writerows(zip((patient_of[path] for path in paths), names, strict=True))
    return paths


def check(folder: Path | str, anatomy: str = AUTO, *, splits: Path | str | None = None) -> FolderReport:
    """Read a whole folder like training does: its patients, and every problem as a sentence."""
    return check_folder(folder, anatomy, None if splits is None else Path(splits))


def import_dicom(source: Path | str, out: Path | str) -> Imported:
    """Convert DICOM series to the training layout, with codes instead of names."""
    return import_folder(Path(source), Path(out))


def join(out: Path | str, *folders: Path | str) -> list[Path]:
    """One data set of several in the layout of ACDC, as links to their images; each of them is a hospital, or several
    (``sites_by="centre"``). Returns the folders of the patients."""
    return join_folders([Path(folder) for folder in folders], Path(out))


def split(
    folder: Path | str,
    out: Path | str,
    *,
    anatomy: str = AUTO,
    sites: int | None = None,
    assignment: Path | str | None = None,
    sites_by: str | None = None,
    folds: int = 5,
    seed: int = 0,
    force: bool = False,
) -> Splits:
    """Split patients across sites and folds and write the split to ``out`` as JSON.

    By default the sites are the folders site-..., if every image is in one, and otherwise ten random groups.
    ``assignment`` is a table that names the site of each patient; ``sites_by`` names an entry of Info.cfg, such as
    centre, by which sites are hospitals. Without ``force`` a different split at ``out`` is an
    error.
    """
    volumes = read_folder(folder, anatomy)
    patients = sorted({volume.patient for volume in volumes})
    labelled = {volume.patient for volume in volumes if volume.label}
    # If no patient has labels, the split is used for pre-training only, and the folds contain all patients.
    unlabelled = [patient for patient in patients if patient not in labelled] if labelled else []
    where: int | dict[str, str] = SITES if sites is None else sites
    if assignment is not None:
        where = read_assignment(assignment)
    elif sites_by is not None:
        where = hospitals.sites_by(Path(folder), volumes, sites_by)
    elif sites is None and all(volume.site for volume in volumes):  # hospitals are mixed only on request
        where = {volume.patient: volume.site for volume in volumes if volume.site}
    made, target = Splits.make(patients, where, folds, seed, unlabelled), Path(out)
    if target.exists() and not force and Splits.load(target) != made:
        raise DataError(
            f"{target} contains a different split that earlier results may depend on; add --force to replace it"
        )
    made.save(target)
    return made
