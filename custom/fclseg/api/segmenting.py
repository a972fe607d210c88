"""Segmentation from Python, the same as ``fclseg segment``."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from fclseg.device import choose_device
from fclseg.dicom.read import holds_dicom
from fclseg.errors import FCLSegError
from fclseg.inference.body import stated_body
from fclseg.inference.cases import find_cases
from fclseg.inference.function import PatientResult
from fclseg.inference.run import Inference
from fclseg.inference.segment import Segmenter
from fclseg.inference.shipped import weights_for
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.model_file import load_model
from fclseg.networks.unet import Encoder


def segment(
    scan: Path | str | None,
    out: Path | str,
    model: Path | str | None = None,
    *,
    ed: Path | str | None = None,
    es: Path | str | None = None,
    all_phases: bool = False,
    workers: int = 1,
    height: float | None = None,
    weight: float | None = None,
    heart_rate: float | None = None,
    architecture: EncoderFactory = Encoder,
) -> list[PatientResult]:
    """Segment and measure a NIfTI file, a folder of images or a folder of DICOM files; one result per patient.

    Label maps, pictures, tables and a report per patient go to ``out``. ``model`` is a fine-tuned model file; the
    shipped weights by default. ``ed`` and ``es`` are two volumes of one patient, instead of ``scan``. Height in cm,
    weight in kg and heart rate per minute are those of a single patient. ``architecture`` makes the encoder that the
    model was trained with, if it is not the paper's.
    """
    if workers < 1:
        raise FCLSegError(f"--workers must be at least 1, not {workers}")
    body = stated_body(height, weight, heart_rate)
    target, imported = Path(out), None
    if scan is not None and Path(scan).is_dir() and holds_dicom(Path(scan)):
        from fclseg.dicom.importing import import_folder

        imported = import_folder(Path(scan), target / "images", keep_sources=True)
        for remark in imported.left_out:
            print(f"left out: {remark}")
        scan = target / "images"
    cases = find_cases(
        _text(scan), _text(ed), _text(es), None if imported else str(out), all_phases=all_phases or bool(imported)
    )
    checkpoint = Path(model) if model else weights_for(cases)
    trained = load_model(checkpoint, encoder=architecture)
    export = None
    if imported:
        from fclseg.dicom.results import write_phases

        cases = replace(cases, refused=(*cases.refused, *imported.problems))
        export = partial(write_phases, out=target, imported=imported, anatomy=trained.anatomy)
    return Inference(Segmenter(trained, choose_device()), cases, target, checkpoint, workers, body, export).run()


def _text(path: Path | str | None) -> str | None:
    return None if path is None else str(path)
