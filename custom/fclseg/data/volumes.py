"""From a folder to ``Volume`` records: the ACDC layout, the HVSMR 2016 layout, or a plain folder of NIfTI images."""

import stat
from pathlib import Path

from fclseg.data import acdc, hvsmr, plain
from fclseg.data.records import LABELS, Scan, Volume, nifti_files, walk
from fclseg.errors import DataError

__all__ = ["LABELS", "LAYOUTS", "Scan", "Volume", "read_folder", "scan_folder"]

LAYOUTS = {"acdc": acdc.read, "hvsmr": hvsmr.read, "nifti": plain.read}


def read_folder(root: Path | str, layout: str = "auto") -> list[Volume]:
    """All volumes of a folder, by patient; labelled frames and unlabelled frames of a 4D cycle alike.

    Refuses a folder with a problem that file names and headers show; voxels are read only when slices are made.
    """
    scan = scan_folder(root, layout)
    if scan.problems:
        others = len(scan.problems) - 1
        more = f" ({others} more: fclseg data check {root} lists all)" if others else ""
        raise DataError(scan.problems[0] + more)
    return scan.volumes


def scan_folder(root: Path | str, layout: str = "auto") -> Scan:
    """Volumes and problems of a folder. Only a folder that holds nothing to judge is an error."""
    root = Path(root)
    if layout not in ("auto", *LAYOUTS):
        raise DataError(f"there is no layout '{layout}': choose one of auto, {', '.join(LAYOUTS)}")
    _check_is_folder(root)
    scan = Scan(root)
    tree = walk(root, scan.problems)
    if not any(nifti_files(files) for files in tree.values()):
        raise DataError(scan.problems[0] if scan.problems else f"{root}: holds no NIfTI image; give a folder that does")
    scan.layout = detect_layout(tree) if layout == "auto" else layout
    LAYOUTS[scan.layout](scan, tree)
    return scan


def _check_is_folder(root: Path) -> None:
    try:
        mode = root.stat().st_mode
    except FileNotFoundError:
        raise DataError(f"{root}: there is no such folder; check the path") from None
    except OSError as error:
        raise DataError(f"{root}: the folder cannot be read ({error.strerror}); change its permissions") from None
    if not stat.S_ISDIR(mode):
        raise DataError(f"{root}: is a file where a folder of images is expected; give the folder it lies in")


def detect_layout(tree: dict[Path, list[Path]]) -> str:
    """By name: Info.cfg and _frameNN files are ACDC's, training_axial_crop_pat0 and the like are HVSMR's."""
    if any(acdc.is_patient_folder(files) for files in tree.values()):
        return "acdc"
    if any(hvsmr.is_hvsmr(path) for files in tree.values() for path in nifti_files(files)):
        return "hvsmr"
    return "nifti"
