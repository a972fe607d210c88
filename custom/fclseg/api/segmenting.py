"""Segmentation from Python, the same as ``fclseg segment``."""

from pathlib import Path

from fclseg.errors import FCLSegError
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
    if workers < 1:
        raise FCLSegError(f"--workers must be at least 1, not {workers}")
    options = SegmentOptions(
        model=_path(model),
        all_phases=all_phases,
        workers=workers,
        body=stated_body(height, weight, heart_rate, sex, age),
        calibration=_path(calibration),
        earlier=_path(earlier),
        pdf=pdf,
        architecture=architecture,
    )
    return segment_scan(_path(scan), Path(out), options, _path(ed), _path(es))


def _path(place: Path | str | None) -> Path | None:
    return None if place is None else Path(place)
