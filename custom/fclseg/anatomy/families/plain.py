"""A hospital's own folder of 3D NIfTI images with optional label maps.

A label map is next to its image, named ``NAME_gt``, ``NAME_label``, ``NAME-label`` or ``NAME_seg``, or has the image's
name in a folder ``labels`` next to the folder ``images``. Images in a sub-folder belong to one patient with the
sub-folder's name. Each image directly in the root (or in ``images``) is a separate patient.

``labels.json`` in the folder names the structures, for example ``{"structures": {"1": "liver", "2": "tumour"},
"spacing_mm": 1.5}``. Without it, images can be used for pre-training, and the bundle defines what the labels mean.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fclseg.anatomy.base import Anatomy, Structure, Tree
from fclseg.anatomy.nifti import stem
from fclseg.anatomy.records import Scan, nifti_files, site_of
from fclseg.documents import read_json
from fclseg.errors import DataError

_LABEL = re.compile(r"^(?P<image>.+)[_-](gt|label|seg)$")
_PHASE = re.compile(r"^(?P<rest>|.+?)(?:^|[ _.-]+)(?P<phase>ED|ES)$", re.IGNORECASE)
_SHARED = ("images", "labels")

NAME = "nifti"
LABELS_FILE = "labels.json"
SPACING_MM = 1.25
COLOURS = ("#4cc9f0", "#7ae582", "#ff5d5d", "#ffd166", "#c77dff", "#f4a261", "#90e0ef", "#e5e5e5")


def recognises(tree: Tree) -> bool:
    """Any folder of NIfTI images can be read as a plain one."""
    return True


def read(scan: Scan, tree: Tree) -> None:
    """Add every image of the tree to the scan."""
    scan.anatomy = anatomy_of(scan.root)
    images: dict[tuple[Path, str], Path] = {}
    labels: dict[tuple[Path, str], Path] = {}
    for path in (path for files in tree.values() for path in nifti_files(files)):
        match = _LABEL.match(stem(path))
        if path.parent.name == "labels" and path.parent != scan.root:
            kind, key = labels, (path.parent.parent / "images", match["image"] if match else stem(path))
        else:
            kind, key = (labels, (path.parent, match["image"])) if match else (images, (path.parent, stem(path)))
        if kind.setdefault(key, path) != path:
            scan.problem(path, f"is a second file for {key[1]} in addition to {kind[key].name}; remove one of them")
    for key in sorted(set(labels) - set(images)):
        scan.problem(
            labels[key], "is a label map without its image; add the image or remove the label map", training_only=True
        )
    _add_patients(scan, images, labels)


def _add_patients(scan: Scan, images: dict[tuple[Path, str], Path], labels: dict[tuple[Path, str], Path]) -> None:
    patients: dict[str, list[tuple[Path, str]]] = defaultdict(list)
    phases = _phases(images)
    for folder, name in sorted(images):
        shared, _ = phases.get((folder, name), (name, None))
        patients[_patient(folder, shared, scan.root)].append((folder, name))
    for patient, keys in sorted(patients.items()):
        if len({folder for folder, _ in keys}) > 1:
            folders = " and ".join(str(folder) for folder in sorted({folder for folder, _ in keys})[:2])
            scan.problem(images[keys[-1]], f"patient {patient} is in {folders}; rename one of them or remove a copy")
            keys = [key for key in keys if key[0] == keys[0][0]]
        for number, key in enumerate(keys, start=1):
            frame = number if len(keys) > 1 else None
            site = site_of(key[0], scan.root)
            if key not in labels and scan.is_cine(images[key]):
                scan.add_cine(patient, images[key], skip=set(), phases={}, site=site)
            else:
                _, phase = phases.get(key, (key[1], None))
                scan.add(patient, images[key], labels.get(key), frame=frame, phase=phase, site=site)


def _phases(images: Mapping[tuple[Path, str], Path]) -> dict[tuple[Path, str], tuple[str, str]]:
    """Pairs such as ``scan ED`` and ``scan ES`` in one folder: (folder, name) -> what they share, and the phase."""
    found = {}
    for folder, name in images:
        if (match := _PHASE.match(name)) is None:
            continue
        partner = [other for place, other in images if place == folder and (two := _PHASE.match(other))
                   and two["rest"] == match["rest"] and two["phase"].upper() != match["phase"].upper()]  # fmt: skip
        if len(partner) == 1:
            found[folder, name] = (match["rest"] or folder.name, match["phase"].upper())
    return found


def _patient(folder: Path, name: str, root: Path) -> str:
    own_folder = folder != root and folder.name not in _SHARED and not folder.name.startswith("site-")
    return folder.name if own_folder else name


ANATOMY = Anatomy(
    name=NAME,
    title="plain NIfTI images",
    structures=(),
    spacing_mm=SPACING_MM,
    bundle="nifti_unet",
    one_organ=False,
    recognises=recognises,
    read=read,
)


def anatomy_of(root: Path) -> Anatomy:
    """The anatomy described by the folder's ``labels.json``; without that file, a plain folder without structures."""
    path = root / LABELS_FILE
    if not path.is_file():
        return ANATOMY
    return from_labels(read_json(path), str(path))


def from_labels(document: Any, source: str) -> Anatomy:
    """An anatomy from the content of ``labels.json``."""
    names = document.get("structures") if isinstance(document, Mapping) else None
    values = {str(value) for value in range(1, len(names) + 1)} if isinstance(names, Mapping) else set()
    if not isinstance(names, Mapping) or not names or set(names) != values or not _are_words(names.values()):
        raise DataError(
            f'{source}: must give the label values 1, 2, ... distinct names in "structures", for example '
            '{"structures": {"1": "liver", "2": "tumour"}}; correct it'
        )
    spacing = document.get("spacing_mm", SPACING_MM)
    if type(spacing) not in (int, float) or not 0 < spacing < 100:
        raise DataError(f"{source}: spacing_mm must be the in-plane pixel size in mm, not {spacing!r}; correct it")
    structures = tuple(
        Structure(value, names[str(value)], names[str(value)], COLOURS[(value - 1) % len(COLOURS)])
        for value in range(1, len(names) + 1)
    )
    return replace(ANATOMY, structures=structures, spacing_mm=float(spacing))


def to_labels(anatomy: Anatomy) -> dict[str, Any]:
    """The content of a ``labels.json`` that describes this anatomy."""
    names = {str(structure.value): structure.name for structure in anatomy.structures}
    return {"structures": names, "spacing_mm": anatomy.spacing_mm}


def _are_words(names: Any) -> bool:
    words = [name for name in names if isinstance(name, str) and re.fullmatch(r"[\w -]{1,40}", name)]
    return len(words) == len(names) == len(set(words))
