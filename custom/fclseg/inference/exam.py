"""From what a hospital has, a DICOM export, a zip archive or NIfTI files, to results in one folder."""

import contextlib
import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fclseg.anatomy.base import Anatomy
from fclseg.device import choose_device
from fclseg.dicom.importing import Imported, import_folder
from fclseg.dicom.read import holds_dicom
from fclseg.dicom.results import write_findings, write_phases
from fclseg.errors import DataError
from fclseg.files import make_folder
from fclseg.inference.calibration import load_calibration
from fclseg.inference.cases import find_cases
from fclseg.inference.function import PatientResult
from fclseg.inference.patients import Inference
from fclseg.inference.segment import Segmenter
from fclseg.inference.shipped import weights_for
from fclseg.inference.values import Body
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.model_file import load_model
from fclseg.networks.unet import Encoder
from fclseg.text import printable

UNPACKED = ".unpacked"
MOST_BYTES = 64 << 30
"""A zip archive that claims to be larger is refused."""


@dataclass(frozen=True)
class SegmentOptions:
    """How a scan is segmented and what is written."""

    model: Path | None = None
    all_phases: bool = False
    workers: int = 1
    body: Body = field(default_factory=Body)
    calibration: Path | None = None  # instead of that beside the model
    earlier: Path | None = None  # results of an earlier exam, for comparison
    pdf: bool = False
    cine_only: bool = False  # refuse DICOM exams without a short-axis cine
    quiet: bool = False
    architecture: EncoderFactory = Encoder  # of the model's encoder


def segment_scan(
    scan: Path | None, out: Path, options: SegmentOptions, ed: Path | None = None, es: Path | None = None
) -> list[PatientResult]:
    """Segment a file, a folder, a zip archive or the two phases of a patient; DICOM results go with DICOM images."""
    if scan is not None and scan.is_file() and zipfile.is_zipfile(scan):
        with unpacked(scan, out) as folder:
            return segment_scan(folder, out, options)
    imported = None
    if scan is not None and scan.exists() and holds_dicom(scan):
        imported = import_folder(scan, out / "images", keep_sources=True, cine_only=options.cine_only)
        for remark in imported.left_out if not options.quiet else ():
            print(f"left out: {printable(remark)}", flush=True)
        for code, notes in imported.notes.items() if not options.quiet else ():
            print("".join(f"{code}: note: {printable(note)}\n" for note in notes), end="", flush=True)
        scan = out / "images"
    cases = find_cases(
        None if scan is None else str(scan),
        None if ed is None else str(ed),
        None if es is None else str(es),
        None if imported else str(out),
        all_phases=options.all_phases or bool(imported),
    )
    checkpoint = options.model or weights_for(cases)
    model = load_model(checkpoint, encoder=options.architecture)
    run = Inference(
        Segmenter(model, choose_device()), cases, out, checkpoint, options.workers, options.body,
        earlier=options.earlier, pdf=options.pdf, quiet=options.quiet,
        calibration=load_calibration(checkpoint, options.calibration),
    )  # fmt: skip
    if imported:
        run.cases = replace(cases, refused=(*cases.refused, *imported.problems))
        run.export = partial(_export, out=out, imported=imported, anatomy=model.anatomy, origin=run.provenance.digest)
    return run.run()


def _export(
    result: PatientResult, pdf: Path | None, *, out: Path, imported: Imported, anatomy: Anatomy, origin: str
) -> list[Path]:
    """Segmentations, measurements and report as DICOM."""
    written = write_phases(result.patient, result.volumes, out, imported, anatomy, origin)
    check = bool(result.flags)
    return written + write_findings(result.patient, result.values, pdf, out, imported, anatomy, origin, check)


@contextlib.contextmanager
def unpacked(archive: Path, out: Path) -> Iterator[Path]:
    """The content of a zip archive in a folder that is removed in the end."""
    folder = out / UNPACKED
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    try:
        _unpack(archive, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(archive: Path, folder: Path) -> None:
    """The same archive gives the same times of files, so that an interrupted run continues."""
    try:
        with zipfile.ZipFile(archive) as file:
            if sum(entry.file_size for entry in file.infolist()) > MOST_BYTES:
                raise DataError(f"{archive}: unpacks to more than {MOST_BYTES >> 30} GB; unpack the exam by hand")
            for entry in file.infolist():
                place = Path(file.extract(entry, folder))  # never outside of the folder
                seconds = time.mktime((*entry.date_time, 0, 0, -1))
                os.utime(place, (seconds, seconds))
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, OverflowError) as error:
        raise DataError(f"{archive}: cannot be unpacked ({error}); copy it again or unpack it by hand") from None
