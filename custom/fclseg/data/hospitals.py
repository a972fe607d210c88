"""Sites that are hospitals: by an entry of ``Info.cfg`` such as Centre, or by a table; and several data sets as one."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.info import INFO, read_info
from fclseg.anatomy.records import Volume
from fclseg.data.assignment import read_assignment
from fclseg.errors import DataError
from fclseg.files import make_folder

SITE = "site-"
"""How the folders of hospitals begin, which ``anatomy.records.site_of`` recognises."""


def sites_by(root: Path, volumes: Sequence[Volume], what: str) -> dict[str, str]:
    """Patient -> site. ``what`` is a table (CSV or JSON) of patients and sites, or an entry of ``Info.cfg``.

    Patients without the entry are one site with the name of their data set: one hospital often does not number itself.
    """
    if Path(what).is_file():
        return read_assignment(what)
    found: dict[str, str] = {}
    known = False
    for volume in volumes:
        entries = {name.lower(): value for name, value in read_info(volume.image.parent / INFO).items()}
        value = entries.get(what.lower())
        known = known or bool(value)
        place = volume.site.removeprefix(SITE) if volume.site else ""
        name = "-".join(filter(None, (place, value))) if place else f"{what}-{value}" if value else root.resolve().name
        found[volume.patient] = re.sub("[^A-Za-z0-9_-]+", "-", name).strip("-") or "unnamed"
    if not known and len(set(found.values())) == 1:
        raise DataError(
            f"{root}: no {INFO} has an entry '{what}', and there is no table of that name: give an entry such as "
            "centre, or a CSV table with the columns patient,site"
        )
    return found


def join_folders(folders: Sequence[Path], out: Path) -> list[Path]:
    """Several data sets in the layout of ACDC as one: ``OUT/site-FOLDER/FOLDER-PATIENT``, as links to the images.

    Returns the patients' folders. Names of patients may repeat between the data sets, which become hospitals.
    """
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise DataError(
            f"two of the folders are named {max(names, key=names.count)}: rename one, it names its patients"
        )
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out}: is not empty; choose a new folder")
    made = []
    for folder, name in zip(folders, names, strict=True):
        volumes = read_folder(folder)
        if volumes[0].anatomy.name != "acdc":
            raise DataError(f"{folder}: is not in the layout of ACDC (patientNNN/ with Info.cfg); convert it first")
        for source in sorted({volume.image.parent for volume in volumes}):
            target = out / f"{SITE}{name}" / f"{name}-{source.name}"
            make_folder(target)
            for path in sorted(source.iterdir()):
                _link(path.resolve(), target / path.name.replace(source.name, target.name, 1))
            made.append(target)
    return made


def _link(source: Path, target: Path) -> None:
    try:
        os.symlink(source, target)
    except OSError:  # some systems and disks have no links
        shutil.copy2(source, target)
