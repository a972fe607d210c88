"""Writes the results of imported patients back to DICOM: one DICOM-SEG per phase, all of one series."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import nibabel as nib
import numpy as np

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.nifti import stem
from fclseg.dicom.document import write_document
from fclseg.dicom.importing import Imported, read_sources
from fclseg.dicom.measurements import Measured, write_measurements
from fclseg.dicom.segmentation import write_segmentation


class Frame(Protocol):
    phase: str | None
    frame: int | None


def write_phases(
    patient: str, frames: Sequence[Frame], out: Path, imported: Imported, anatomy: Anatomy, origin: str = ""
) -> list[Path]:
    """Writes ``CODE_ED.dcm``, ``CODE_ES.dcm``, ``CODE_frame03.dcm`` ...; ``CODE.dcm`` for an image with one phase."""
    image = imported.patients[patient]
    labels = np.asarray(nib.load(out / f"{stem(image)}_seg.nii.gz").dataobj)
    sources = read_sources(image.parent)
    labels = labels if labels.ndim == 4 else labels[..., None]
    written = []
    for number, one in enumerate(frames):
        phase = one.phase or (f"frame{one.frame:02d}" if one.frame is not None and labels.shape[3] > 1 else "")
        path = out / (f"{patient}_{phase}.dcm" if phase else f"{patient}.dcm")
        own = [phases[number] for phases in sources]
        write_segmentation(path, labels[..., number], own, anatomy, phase, number=number + 1, origin=origin)
        written.append(path)
    return written


def write_findings(
    patient: str,
    values: Sequence[Measured],
    pdf: Path | None,
    out: Path,
    imported: Imported,
    anatomy: Anatomy,
    origin: str,
    check: bool,
) -> list[Path]:
    """``CODE_measurements.dcm``, a structured report, and ``CODE_report.dcm``, the PDF."""
    sources = [phases[0] for phases in read_sources(imported.patients[patient].parent)]
    written = [out / f"{patient}_measurements.dcm"]
    write_measurements(written[0], values, sources, anatomy, origin, check)
    if pdf is not None:
        written.append(out / f"{patient}_report.dcm")
        write_document(written[1], pdf.read_bytes(), sources[0], origin)
    return written
