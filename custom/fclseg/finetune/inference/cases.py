"""From what the user points at to the volumes to segment."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import nibabel as nib
import numpy as np

from fclseg.anatomy.families import plain
from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.nifti import is_nifti, read_header, read_voxels, stem
from fclseg.anatomy.records import Volume
from fclseg.errors import DataError


def find_cases(
    input: str | None = None, ed: str | None = None, es: str | None = None, output_dir: str | None = None
) -> list[Volume]:
    """One NIfTI file, a folder (of any anatomy that is known), or the two phases of one patient as files.

    Results must not be written into an input folder: the next run would take them for images.
    """
    if ed is not None or es is not None:
        if ed is None or es is None or input is not None:
            raise DataError("a pair of phases needs --ed FILE and --es FILE together, and no --input")
        if Path(ed).resolve() == Path(es).resolve():
            raise DataError(f"{ed}: is given as both ED and ES; give the two phases' own files")
        patient = stem(Path(ed))
        return [_single(Path(path), patient, phase) for path, phase in ((ed, "ED"), (es, "ES"))]
    if input is None:
        raise DataError("nothing to segment was given: pass --input FILE_OR_FOLDER, or --ed FILE and --es FILE")
    path = Path(input)
    if path.is_dir() and output_dir is not None and Path(output_dir).resolve().is_relative_to(path.resolve()):
        raise DataError(f"output_dir {output_dir} lies in the input folder: choose a folder outside of it")
    if path.is_dir():
        return _from_folder(path)
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder; check the path")
    return [_single(path, stem(path), None)]


def _single(path: Path, patient: str, phase: str | None) -> Volume:
    if path.exists() and not is_nifti(path):
        raise DataError(f"{path}: is not a NIfTI file by its name; convert the images to .nii or .nii.gz first")
    header = read_header(path)
    if len(header.shape) != 3:
        raise DataError(f"{path}: is {len(header.shape)}D where a 3D volume is expected; split it into its time points")
    return Volume(patient, None, phase, path, None, header.spacing, plain.ANATOMY)


def _from_folder(path: Path) -> list[Volume]:
    """Every 3D file, and of a 4D cycle the frames that are named as ED or ES."""
    cases = [volume for volume in read_folder(path) if volume.time_index is None or volume.phase is not None]
    if not cases:
        raise DataError(f"{path}: holds no 3D image and no cycle with named phases; add Info.cfg or split the cycle")
    return cases


def read_case(case: Volume) -> tuple[nib.Nifti1Image, np.ndarray]:
    """The file, for its geometry, and the voxels [X, Y, S]."""
    voxels = read_voxels(case.image)
    return nib.load(case.image), voxels if case.time_index is None else voxels[..., case.time_index]


def output_names(cases: Sequence[Volume]) -> list[str]:
    """The stems of the files to write; where two inputs share one, their folder's name comes first.

    Even that can be the same for the two phases of a pair (``ED/anna/1.nii`` and ``ES/anna/1.nii``), so then the phase.
    """
    names = [stem(case.image) if case.time_index is None else f"{stem(case.image)}_{case.phase}" for case in cases]
    for prefixes in ([case.image.parent.name for case in cases], [case.phase for case in cases]):
        count = Counter(names)
        names = [name if count[name] == 1 else f"{prefix}_{name}" for name, prefix in zip(names, prefixes, strict=True)]
    return names
