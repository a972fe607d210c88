"""Cardiovascular MRI as the HVSMR 2016 challenge stores it: ``training_axial_crop_pat0[-label].nii.gz``."""

import re
from pathlib import Path

from fclseg.anatomy.base import Anatomy, Mass, Structure, Tree
from fclseg.anatomy.nifti import stem
from fclseg.anatomy.records import Scan, nifti_files, site_of

CROPS = ("axial_crop", "axial_full", "sa_crop", "sa_full")
"""The challenge's versions of an image, best first: the paper uses axial slices, cropped around the heart."""

_NAME = re.compile(r"^[a-z]+_(?P<crop>(axial|sa)_(crop|full))_(?P<patient>pat\d+)(?P<label>-label)?$")


def is_hvsmr(path: Path) -> bool:
    return _NAME.match(stem(path)) is not None


def recognises(tree: Tree) -> bool:
    return any(is_hvsmr(path) for files in tree.values() for path in nifti_files(files))


def read(scan: Scan, tree: Tree) -> None:
    """Add one image per patient to the scan, from the best crop in the folder."""
    images: dict[str, dict[str, Path]] = {crop: {} for crop in CROPS}
    labels: dict[str, dict[str, Path]] = {crop: {} for crop in CROPS}
    for path in (path for files in tree.values() for path in nifti_files(files)):
        match = _NAME.match(stem(path))
        if match is None:
            scan.problem(path, "is not named like training_axial_crop_pat0[-label].nii.gz; rename or remove it")
            continue
        kind = (labels if match["label"] else images)[match["crop"]]
        first = kind.setdefault(match["patient"], path)
        if first != path:
            scan.problem(path, f"patient {match['patient']} is also in {first}; keep one of the two files")
    _add_crop(scan, images, labels)


def _add_crop(scan: Scan, images: dict[str, dict[str, Path]], labels: dict[str, dict[str, Path]]) -> None:
    crop = next((crop for crop in CROPS if images[crop]), CROPS[0])
    for patient, image in sorted(images[crop].items(), key=lambda item: int(item[0].removeprefix("pat"))):
        site = site_of(image.parent, scan.root)
        scan.add(patient, image, labels[crop].get(patient), frame=None, phase=None, site=site)
    for patient in sorted({patient for found in images.values() for patient in found} - set(images[crop])):
        path = next(found[patient] for found in images.values() if patient in found)
        scan.problem(path, f"patient {patient} has no {crop} image like the others; add it or remove this file")
    for kind in CROPS:
        for patient in sorted(set(labels[kind]) - set(images[kind])):
            scan.problem(
                labels[kind][patient],
                "is a label map without its image; add the image or remove the label map",
                training_only=True,
            )


ANATOMY = Anatomy(
    name="hvsmr",
    title="axial cardiovascular MRI (HVSMR 2016)",
    structures=(
        Structure(1, "MYO", "myocardium", "#7ae582"),
        Structure(2, "BP", "blood pool", "#ff5d5d"),
    ),
    spacing_mm=0.7,
    bundle="hvsmr_unet",
    measurements=(Mass("MYO", g_per_ml=1.05, plausible=(5, 600)),),
    recognises=recognises,
    read=read,
)
