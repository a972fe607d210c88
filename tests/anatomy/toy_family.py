"""A new organ in one file, which ``test_toy_anatomy`` copies to ``families/``."""

import re
from pathlib import Path

from fclseg.anatomy.base import Anatomy, Mass, Structure, Tree
from fclseg.anatomy.nifti import stem
from fclseg.anatomy.records import Scan, nifti_files, site_of

_NAME = re.compile(r"^kidney-(?P<patient>\d+)(?P<mask>-mask)?$")


def _files(tree: Tree, mask: bool) -> dict[str, Path]:
    found = ((_NAME.match(stem(path)), path) for files in tree.values() for path in nifti_files(files))
    return {match["patient"]: path for match, path in found if match and bool(match["mask"]) == mask}


def recognises(tree: Tree) -> bool:
    return bool(_files(tree, mask=False))


def read(scan: Scan, tree: Tree) -> None:
    masks = _files(tree, mask=True)
    for patient, image in sorted(_files(tree, mask=False).items()):
        site = site_of(image.parent, scan.root)
        scan.add(f"kidney-{patient}", image, masks.get(patient), frame=None, phase=None, site=site)


ANATOMY = Anatomy(
    name="kidney",
    title="toy kidneys",
    structures=(
        Structure(1, "CORTEX", "renal cortex", "#4cc9f0"),
        Structure(2, "CYST", "cyst", "#ff5d5d"),
    ),
    spacing_mm=1.0,
    bundle="kidney_unet",
    partitions=2,
    measurements=(Mass("CORTEX", g_per_ml=1.1),),
    recognises=recognises,
    read=read,
)
