"""Segmentation from Python, the same as ``fclseg segment`` and ``fclseg batch``."""

from pathlib import Path
from typing import Any

from fclseg.errors import FCLSegError
from fclseg.inference.batch import run_batch
from fclseg.inference.body import stated_body
from fclseg.inference.exam import SegmentOptions, segment_scan
from fclseg.inference.function import PatientResult
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.unet import Encoder


def segment(
    scan: Path | str | None,
    out: Path | str,
    model: Path | str | None = None,
    *,
    ed: Path | str | None = None,
    es: Path | str | None = None,
    calibration: Path | str | None = None,
    all_phases: bool = False,
    workers: int = 1,
    height: float | None = None,
    weight: float | None = None,
    heart_rate: float | None = None,
    sex: str | None = None,
    age: float | None = None,
    earlier: Path | str | None = None,
    pdf: bool = False,
    architecture: EncoderFactory = Encoder,
) -> list[PatientResult]:
    """Segment and measure a NIfTI file, a folder, a DICOM export or a zip archive of these; one result per patient.

    Label maps, pictures, tables and a report per patient go to ``out``. ``model`` is a fine-tuned model file; the
    shipped weights by default. ``calibration`` gives its numbers intervals; by default that beside the model. ``ed``
    and ``es`` are two volumes of one patient, instead of ``scan``. Height in cm, weight in kg, heart rate per minute,
    sex ("male" or "female") and age are those of a single patient. ``earlier`` are results of an earlier exam to
    compare with, and ``pdf`` writes each report as a PDF, too. ``architecture`` makes the encoder that the model was
    trained with, if it is not the paper's.
    """
    options = SegmentOptions(
        model=_path(model),
        all_phases=all_phases,
        workers=_positive(workers),
        body=stated_body(height, weight, heart_rate, sex, age),
        calibration=_path(calibration),
        earlier=_path(earlier),
        pdf=pdf,
        architecture=architecture,
    )
    return segment_scan(_path(scan), Path(out), options, _path(ed), _path(es))


def batch(
    folder: Path | str,
    out: Path | str,
    model: Path | str | None = None,
    *,
    all_phases: bool = False,
    cine_only: bool = False,
    workers: int = 1,
    pdf: bool = False,
) -> list[dict[str, Any]]:
    """Segment every exam of a folder: each sub-folder, zip archive or image in it. Returns one row per exam, with what
    was found or the ``reason`` why nothing was.

    Each exam has a folder in ``out``, and ``exams.csv`` is the table of all. The same call continues where it was
    stopped. ``cine_only`` refuses DICOM exams without a short-axis cine.
    """
    options = SegmentOptions(
        model=_path(model), all_phases=all_phases, workers=_positive(workers), pdf=pdf, cine_only=cine_only
    )
    return run_batch(Path(folder), Path(out), options)


def _positive(workers: int) -> int:
    if workers < 1:
        raise FCLSegError(f"--workers must be at least 1, not {workers}")
    return workers


def _path(place: Path | str | None) -> Path | None:
    return None if place is None else Path(place)
