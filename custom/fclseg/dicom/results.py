"""Writes the label maps of imported patients back to DICOM: one DICOM-SEG per phase."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import nibabel as nib
import numpy as np

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.nifti import stem
from fclseg.dicom.importing import Imported, read_sources
from fclseg.dicom.segmentation import write_segmentation


class Frame(Protocol):
    phase: str | None
    frame: int | None


def write_phases(patient: str, frames: Sequence[Frame], out: Path, imported: Imported, anatomy: Anatomy) -> list[Path]:
    """Writes ``CODE_ED.dcm``, ``CODE_ES.dcm``, ``CODE_frame03.dcm`` ...; ``CODE.dcm`` for an image with one phase."""
    image = imported.patients[patient]
    labels = np.asarray(nib.load(out / f"{stem(image)}_seg.nii.gz").dataobj)
    sources = read_sources(image.parent)
    labels = labels if labels.ndim == 4 else labels[..., None]
    written = []
    for number, one in enumerate(frames):
        phase = one.phase or (f"frame{one.frame:02d}" if one.frame is not None and labels.shape[3] > 1 else "")
        path = out / (f"{patient}_{phase}.dcm" if phase else f"{patient}.dcm")
        write_segmentation(path, labels[..., number], [phases[number] for phases in sources], anatomy, phase)
        written.append(path)
    return written
