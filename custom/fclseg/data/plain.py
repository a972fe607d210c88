"""A hospital's own folder of 3D NIfTI images with optional label maps.

A label map lies beside its image as ``NAME_gt``, ``NAME_label``, ``NAME-label`` or ``NAME_seg``, or has the image's
name in a folder ``labels`` beside the folder ``images``. Images in a folder of their own share that folder's name as
patient; an image directly in the root (or in ``images``) is a patient by itself.
"""

import re
from collections import defaultdict
from pathlib import Path

from fclseg.data.nifti import stem
from fclseg.data.records import Scan, nifti_files, site_of

_LABEL = re.compile(r"^(?P<image>.+)[_-](gt|label|seg)$")
_SHARED = ("images", "labels")


def read(scan: Scan, tree: dict[Path, list[Path]]) -> None:
    """Add every image of the tree to the scan."""
    images: dict[tuple[Path, str], Path] = {}
    labels: dict[tuple[Path, str], Path] = {}
    for path in (path for files in tree.values() for path in nifti_files(files)):
        match = _LABEL.match(stem(path))
        if path.parent.name == "labels" and path.parent != scan.root:
            kind, key = labels, (path.parent.parent / "images", match["image"] if match else stem(path))
        else:
            kind, key = (labels, (path.parent, match["image"])) if match else (images, (path.parent, stem(path)))
        if kind.setdefault(key, path) != path:
            scan.problem(path, f"is a second file for {key[1]} besides {kind[key].name}; remove one of them")
    for key in sorted(set(labels) - set(images)):
        scan.problem(labels[key], "is a label map without its image; add the image or remove the label map")
    _add_patients(scan, images, labels)


def _add_patients(scan: Scan, images: dict[tuple[Path, str], Path], labels: dict[tuple[Path, str], Path]) -> None:
    patients: dict[str, list[tuple[Path, str]]] = defaultdict(list)
    for folder, name in sorted(images):
        patients[_patient(folder, name, scan.root)].append((folder, name))
    for patient, keys in sorted(patients.items()):
        if len({folder for folder, _ in keys}) > 1:
            folders = " and ".join(str(folder) for folder in sorted({folder for folder, _ in keys})[:2])
            scan.problem(images[keys[-1]], f"patient {patient} is in {folders}; rename one of them or remove a copy")
            keys = [key for key in keys if key[0] == keys[0][0]]
        for number, key in enumerate(keys, start=1):
            frame = number if len(keys) > 1 else None
            site = site_of(key[0], scan.root)
            scan.add(patient, images[key], labels.get(key), frame=frame, phase=None, site=site)


def _patient(folder: Path, name: str, root: Path) -> str:
    own_folder = folder != root and folder.name not in _SHARED and not folder.name.startswith("site-")
    return folder.name if own_folder else name
