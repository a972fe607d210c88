"""Short-axis cine MRI as the ACDC challenge stores it: ``patientNNN/`` with ``Info.cfg``, frames and the cycle."""

import re
from pathlib import Path

from fclseg.anatomy.base import Anatomy, EjectionFraction, Mass, Structure, Tree, Wall
from fclseg.anatomy.info import INFO
from fclseg.anatomy.nifti import stem
from fclseg.anatomy.normals import ADULT_HEARTS
from fclseg.anatomy.records import Scan, nifti_files, site_of

_FRAME = re.compile(r"^(?P<patient>.+)_frame(?P<frame>\d+)(?P<gt>_gt)?$")
_CINE = re.compile(r"^(?P<patient>.+)_4d$")


def cycle_of(image: str) -> str:
    """What the frames of one cycle share in their names: patient001 of patient001_frame12.nii.gz; else the name."""
    match = _FRAME.match(stem(Path(image)))
    return match["patient"] if match else image


def is_patient_folder(files: list[Path]) -> bool:
    return any(path.name == INFO for path in files) or any(
        _FRAME.match(stem(path)) or _CINE.match(stem(path)) for path in nifti_files(files)
    )


def recognises(tree: Tree) -> bool:
    """Whether any folder has Info.cfg, or files named _frameNN or _4d."""
    return any(is_patient_folder(files) for files in tree.values())


def read(scan: Scan, tree: Tree) -> None:
    """Add every patient folder of the tree to the scan."""
    seen: dict[str, Path] = {}
    for folder, files in tree.items():
        if not is_patient_folder(files):
            for path in nifti_files(files):
                scan.problem(path, "is not in a patient folder; move it to the folder of its patient")
            continue
        for name, own in _patients(folder, files).items():
            if name in seen:
                scan.problem(folder, f"patient {name} is also in {seen[name]}; keep one of the two folders")
            else:
                seen[name] = folder
                _read_patient(scan, folder, name, own)


def _patients(folder: Path, files: list[Path]) -> dict[str, list[Path]]:
    """The files of each patient of a folder: one, named like the folder, or those of a flat folder."""
    groups: dict[str, list[Path]] = {}
    for path in nifti_files(files):
        match = _FRAME.match(stem(path)) or _CINE.match(stem(path))
        groups.setdefault(match["patient"] if match else "", []).append(path)
    own = any(path.name == INFO for path in files) and len(groups) == 1  # a patient's folder, with wrong names
    flat = groups and "" not in groups and folder.name not in groups and not own
    return groups if flat else {folder.name: files}


def _read_patient(scan: Scan, folder: Path, name: str, files: list[Path]) -> None:
    images, labels, cines = _sort_files(scan, name, files)
    phases = _read_phases(scan, folder / INFO, needed=bool(images))
    site = site_of(folder, scan.root)
    for frame, image in sorted(images.items()):
        scan.add(name, image, labels.get(frame), frame=frame, phase=phases.get(frame), site=site)
    for frame in sorted(set(labels) - set(images)):
        scan.problem(
            labels[frame], "is a label map without its image; add the image or remove the label map", training_only=True
        )
    for cine in cines[:1]:
        scan.add_cine(name, cine, skip=set(images), phases=phases, site=site)
    if not images and not cines:
        scan.problem(folder, "the patient folder contains no image; add its _frameNN or _4d NIfTI files or remove it")
    elif not cines and (absent := sorted(set(phases) - set(images))):
        scan.problem(folder / INFO, f"names frame {absent[0]} as {phases[absent[0]]}, but it has no image; correct one")


def _sort_files(scan: Scan, name: str, files: list[Path]) -> tuple[dict[int, Path], dict[int, Path], list[Path]]:
    """Images and label maps by frame number, and 4D files. Unexpected names are reported as problems."""
    images: dict[int, Path] = {}
    labels: dict[int, Path] = {}
    cines: list[Path] = []
    for path in nifti_files(files):
        match = _FRAME.match(stem(path)) or _CINE.match(stem(path))
        if match is None:
            scan.problem(path, "has a name that is neither _frameNN, _frameNN_gt nor _4d; rename or remove it")
        elif match["patient"] != name:
            scan.problem(path, f"is named after a different patient than its folder {name}; move or rename it")
        elif match.re is _CINE:
            cines.append(path)
        else:
            kind, frame = labels if match["gt"] else images, int(match["frame"])
            if kind.setdefault(frame, path) != path:
                scan.problem(
                    path, f"is a second file for frame {frame} in addition to {kind[frame].name}; remove one of them"
                )
    for extra in cines[1:]:
        scan.problem(extra, f"is a second 4D cycle in addition to {cines[0].name}; remove one of them")
    return images, labels, cines


def _read_phases(scan: Scan, path: Path, needed: bool) -> dict[int, str]:
    """Frame number -> "ED" or "ES". ``needed`` if frames have their own files; a cycle alone needs no names."""
    if not needed and not path.exists():
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        scan.problem(
            path,
            "is missing; copy it from the source, or write one with the lines 'ED: 1' and 'ES: 12'",
            training_only=True,
        )
        return {}
    except (OSError, UnicodeDecodeError):
        scan.problem(
            path, "cannot be read as text; copy it from the source again or change its permissions", training_only=True
        )
        return {}
    pairs = [line.split(":", 1) for line in lines if ":" in line]
    entries = {name.strip(): value.strip() for name, value in pairs}
    phases: dict[int, str] = {}
    for phase in ("ED", "ES"):
        if phase not in entries and not needed:
            continue
        if not re.fullmatch("[0-9]{1,6}", entries.get(phase, "")):
            scan.problem(path, f"has no line '{phase}: <frame number>'; add it", training_only=True)
        elif phases.setdefault(int(entries[phase]), phase) != phase:
            scan.problem(path, f"names frame {entries[phase]} as ED and as ES; correct one")
    return phases


_RV_CAUTION = (
    "less reliable than the LV's: its ejection fraction is off by 10 points or more on average in held-out patients"
)
"""docs/results.md, "Inference"."""

_MASS_CAUTION = (
    "less reliable than the volumes: the outer border of the wall is hard to see, and mass is often too high"
)

ANATOMY = Anatomy(
    name="acdc",
    title="short-axis cine MRI (ACDC)",
    structures=(
        Structure(1, "RV", "right ventricle", "#4cc9f0"),
        Structure(2, "MYO", "myocardium", "#7ae582"),
        Structure(3, "LV", "left ventricle", "#ff5d5d"),
    ),
    spacing_mm=1.25,
    bundle="acdc_unet",
    compact=True,
    measurements=(
        Mass("MYO", g_per_ml=1.05, plausible=(20, 400), caution=_MASS_CAUTION),
        EjectionFraction("LV", plausible=(5, 85), plausible_ml=(15, 600)),
        EjectionFraction("RV", plausible=(5, 85), plausible_ml=(15, 600), caution=_RV_CAUTION),
        Wall("LV", "MYO"),
    ),
    normals=ADULT_HEARTS,
    recognises=recognises,
    read=read,
)
