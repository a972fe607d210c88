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
    """Writes ``CODE_ED.dcm`` and so on for named phases; ``CODE.dcm`` for an image with a single phase."""
    written = []
    for result in results:
        image = imported.patients[result.patient]
        labels = np.asarray(nib.load(out / f"{stem(image)}_seg.nii.gz").dataobj)
        sources = read_sources(image.parent)
        labels = labels if labels.ndim == 4 else labels[..., None]
        for number, one in enumerate(result.volumes):
            if one.phase is None and labels.shape[3] > 1:
                continue
            path = out / (f"{result.patient}_{one.phase}.dcm" if one.phase else f"{result.patient}.dcm")
            phases = [names[number] for names in sources]
            write_segmentation(path, labels[..., number], phases, anatomy, one.phase or "")
            written.append(path)
    return written
