"""Reads a folder of any anatomy into ``Volume`` records."""

import stat
from pathlib import Path

from fclseg.anatomy.base import Anatomy, Tree
from fclseg.anatomy.families.plain import anatomy_of
from fclseg.anatomy.records import Scan, Volume, nifti_files, walk
from fclseg.anatomy.registry import ANATOMIES, recognise
from fclseg.errors import DataError

AUTO = "auto"
"""Recognise the anatomy by file names."""


def read_folder(root: Path | str, anatomy: str = AUTO) -> list[Volume]:
    """All volumes of a folder, by patient: labelled frames as well as unlabelled frames of a 4D cycle.

    Raises if file names or headers show a problem. Voxels are read only when slices are made.
    """
    scan = scan_folder(root, anatomy)
    if scan.problems:
        others = len(scan.problems) - 1
        more = f" ({others} more: fclseg data check {root} lists all)" if others else ""
        raise DataError(scan.problems[0] + more)
    return scan.volumes


def scan_folder(root: Path | str, anatomy: str = AUTO) -> Scan:
    """Volumes and problems of a folder. Raises only if the folder contains no images at all."""
    root = Path(root)
    problems: list[str] = []
    found, tree = _look(root, anatomy, problems)
    scan = Scan(root, found, problems=problems)
    found.read(scan, tree)
    return scan


def folder_anatomy(root: Path | str, anatomy: str = AUTO) -> Anatomy:
    """The anatomy of a folder, judged by file names only."""
    found, _ = _look(Path(root), anatomy, [])
    return found if found.structures else anatomy_of(Path(root))


def _look(root: Path, anatomy: str, problems: list[str]) -> tuple[Anatomy, Tree]:
    if anatomy not in (AUTO, *ANATOMIES):
        raise DataError(f"there is no anatomy '{anatomy}': choose one of {AUTO}, {', '.join(ANATOMIES)}")
    _check_is_folder(root)
    tree = walk(root, problems)
    if not any(nifti_files(files) for files in tree.values()):
        raise DataError(problems[0] if problems else f"{root}: contains no NIfTI image; give a folder of images")
    return recognise(tree) if anatomy == AUTO else ANATOMIES[anatomy], tree


def _check_is_folder(root: Path) -> None:
    try:
        mode = root.stat().st_mode
    except FileNotFoundError:
        raise DataError(f"{root}: there is no such folder; check the path") from None
    except OSError as error:
        raise DataError(f"{root}: the folder cannot be read ({error.strerror}); change its permissions") from None
    if not stat.S_ISDIR(mode):
        raise DataError(f"{root}: is a file, but a folder of images is expected; give the folder that contains it")
