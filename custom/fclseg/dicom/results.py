"""Writes the label maps of imported patients back to DICOM: one DICOM-SEG per phase."""

from pathlib import Path
from typing import Protocol

import nibabel as nib
import numpy as np

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.nifti import stem
from fclseg.dicom.importing import Imported, read_sources
from fclseg.dicom.segmentation import write_segmentation


class _Frame(Protocol):
    phase: str | None
    frame: int | None


class _Result(Protocol):
    patient: str

    @property
    def volumes(self) -> "list[_Frame]": ...


def write_phases(out: Path, imported: Imported, results: list, anatomy: Anatomy) -> list[Path]:
    """Writes ``CODE_ED.dcm``, ``CODE_ES.dcm``, ``CODE_frame03.dcm`` ...; ``CODE.dcm`` for an image with one phase."""
    written = []
    for result in results:
        image = imported.patients[result.patient]
        labels = np.asarray(nib.load(out / f"{stem(image)}_seg.nii.gz").dataobj)
        sources = read_sources(image.parent)
        labels = labels if labels.ndim == 4 else labels[..., None]
        for number, one in enumerate(result.volumes):
            phase = one.phase or (f"frame{one.frame:02d}" if one.frame is not None and labels.shape[3] > 1 else "")
            path = out / (f"{result.patient}_{phase}.dcm" if phase else f"{result.patient}.dcm")
            images = [phases[number] for phases in sources]
            write_segmentation(path, labels[..., number], images, anatomy, phase)
            written.append(path)
    return written
