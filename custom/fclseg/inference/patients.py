"""The whole of inference: segment, measure, draw and report every patient, and write everything to one folder."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch

from fclseg.anatomy.records import Volume, read_images
from fclseg.dicom.importing import NOTES
from fclseg.documents import UNUSABLE, read_json
from fclseg.errors import DataError, FCLSegError
from fclseg.files import make_folder, whole_file, write_text
from fclseg.inference import NOTICE
from fclseg.inference.body import body_of
from fclseg.inference.calibration import Calibration, load_calibration
from fclseg.inference.cases import Cases, output_names
from fclseg.inference.function import PatientResult, patient_result
from fclseg.inference.measure import Measurement, measure
from fclseg.inference.mirror import is_mirrored, is_suspect
from fclseg.inference.overlay import write_overlay
from fclseg.inference.report.earlier import read_earlier
from fclseg.inference.report.page import (
    INDEX,
    KEY_FIGURES,
    Provenance,
    cautions_of,
    page_name,
    write_index,
    write_patient,
)
from fclseg.inference.report.pdf import write_pdf
from fclseg.inference.segment import Segmenter
from fclseg.inference.stack import stack_flags
from fclseg.inference.tables import write_tables
from fclseg.inference.values import Body
from fclseg.text import printable

PICTURE = "_overlay.png"
DONE = "_result.json"
"""Suffix of the file that marks a patient as finished, so that the same command continues where it stopped."""

Export = Callable[[PatientResult, Path | None], list[Path]]
"""Writes a patient's results in another format; takes the result and its PDF, returns the files."""
INDEX_SECONDS = 10.0
"""The index page grows at most this often."""


class Inference:
    """``run()`` writes NAME_seg.nii.gz and NAME_overlay.png per volume, a report per patient, tables and an index."""

    def __init__(
        self,
        segmenter: Segmenter,
        cases: Cases | Sequence[Volume],
        output_dir: str | Path,
        checkpoint: str | Path | None = None,
        workers: int = 1,
        body: Body = Body(),  # noqa: B008 (immutable)
        export: Export | None = None,
        earlier: Path | None = None,
        pdf: bool = False,
        quiet: bool = False,
        calibration: Calibration | None = None,
    ):
        """``body`` is what the user knows about the patient, if there is only one; ``earlier`` an exam to compare with.

        ``pdf`` adds NAME_report.pdf, and ``quiet`` prints nothing. ``calibration`` is that beside the checkpoint by
        default.
        """
        self.segmenter, self.output_dir, self.workers = segmenter, Path(output_dir), workers
        self.body, self.export, self.earlier, self.pdf, self.quiet = body, export, earlier, pdf, quiet
        self.cases = cases if isinstance(cases, Cases) else Cases(tuple(cases))
        self.anatomy = segmenter.model.anatomy
        self.calibration = calibration or load_calibration(checkpoint)
        self.provenance = Provenance.of(segmenter.model, checkpoint)
        self.names = dict(zip(self.cases.volumes, output_names(self.cases.volumes), strict=True))

    def run(self) -> list[PatientResult]:
        """One bad file does not stop the others. It is reported at the end."""
        results, refused = [], list(self.cases.refused)
        patients = list(self.cases.by_patient())
        if self.body != Body() and len(patients) > 1:
            raise DataError(
                f"height, weight and heart rate are given for one patient, but there are {len(patients)}: "
                "write them to each patient's Info.cfg instead"
            )
        make_folder(self.output_dir)
        written = time.monotonic()
        for number, outcome in enumerate(self._outcomes(patients), start=1):
            if isinstance(outcome, DataError):
                refused.append(str(outcome))
            else:
                results.append(outcome)
            self._tell(outcome, f"[{number}/{len(patients)}] ")
            if results and time.monotonic() - written > INDEX_SECONDS:
                self._write_index(results, refused, len(patients) - number)
                written = time.monotonic()
        if results:
            write_tables(self.output_dir, results, self.anatomy)
            self._write_index(results, refused, 0)
            self._tell_end(results)
        if refused:
            raise DataError(
                f"{len(refused)} of {len(patients) + len(self.cases.refused)} refused: {' / '.join(refused)}"
            )
        return results

    def _write_index(self, results: list[PatientResult], refused: list[str], waiting: int) -> None:
        write_index(self.output_dir, results, refused, self.anatomy, self.provenance, waiting)

    def _outcomes(self, patients: list[tuple[str, list[Volume]]]) -> Iterator[PatientResult | DataError]:
        """Results in the order of the patients, computed by several processes if asked for."""
        if self.workers == 1:
            yield from map(self.attempt, patients)
            return
        threads = max(1, (os.cpu_count() or 1) // self.workers)
        with ProcessPoolExecutor(
            self.workers, get_context("spawn"), initializer=torch.set_num_threads, initargs=(threads,)
        ) as pool:
            try:
                yield from pool.map(self.attempt, patients)
            except BrokenProcessPool:
                raise FCLSegError(
                    "a worker process was killed, perhaps because memory ran out; finished patients are kept: run the "
                    "same command again with fewer --workers"
                ) from None

    def attempt(self, patient: tuple[str, list[Volume]]) -> PatientResult | DataError:
        """The result of a patient, or a sentence that says why there is none."""
        try:
            return self.patient(*patient)
        except DataError as error:
            return error

    def patient(self, patient: str, volumes: list[Volume]) -> PatientResult:
        """Segment one patient, or reuse the result of an earlier run."""
        name = page_name(patient)
        done = self.output_dir / f"{name}{DONE}"
        body = body_of(volumes, self.body)
        fingerprint = self._fingerprint(volumes, body)
        if (finished := _finished(done, fingerprint)) is not None:
            result = self._result(patient, finished.measurements, volumes, body)
            # The page is written again, because the calibration may be another one.
            earlier = None if self.earlier is None else read_earlier(self.earlier, patient)
            write_patient(self.output_dir, name, result, finished.pictures, self.anatomy, self.provenance, earlier)
            return result
        measurements: list[Measurement] = []
        frames: dict[int, tuple[Volume, np.ndarray, np.ndarray]] = {}
        written: list[Path] = []
        for _, group in groupby(volumes, key=lambda volume: volume.image):
            written += self._image(list(group), measurements, frames)
        result = self._result(patient, measurements, volumes, body)
        pictures = self._pictures(result, frames)
        written += pictures
        earlier = None if self.earlier is None else read_earlier(self.earlier, patient)
        pdf = None
        if self.pdf:
            pdf = write_pdf(self.output_dir, name, result, pictures, self.anatomy, self.provenance, earlier)
            written.append(pdf)
        if self.export is not None:
            written += self.export(result, pdf)
        written.append(write_patient(self.output_dir, name, result, pictures, self.anatomy, self.provenance, earlier))
        files = [path.name for path in written]
        content = {"fingerprint": fingerprint, "files": files, "volumes": [asdict(one) for one in measurements]}
        write_text(done, json.dumps(content))
        return result

    def _result(
        self, patient: str, measurements: list[Measurement], volumes: list[Volume], body: Body
    ) -> PatientResult:
        """The values, with what the import of the images noted."""
        result = patient_result(patient, measurements, self.anatomy, body, self.calibration)
        notes = volumes[0].image.with_name(NOTES)
        result.notes[:0] = read_json(notes) if notes.is_file() else []
        return result

    def _image(
        self, volumes: list[Volume], measurements: list[Measurement], frames: dict[int, tuple[Volume, Any, Any]]
    ) -> list[Path]:
        """Segment the frames of one file and return the label maps. The heart is located in the first frame."""
        near, labels, written = None, [], []
        first, mirrored = len(measurements), None  # decided once per file: it costs another segmentation
        for volume, voxels in read_images(volumes):
            found = self.segmenter(voxels, volume, near)
            near = found.centre or near
            who = {"patient": volume.patient, "phase": volume.phase, "image": volume.image.name, "frame": volume.frame}
            frames[len(measurements)] = (volume, voxels, found.labels)
            measured = measure(found, volume.spacing, self.anatomy, **who)
            measured.flags += stack_flags(voxels, found.labels, volume.spacing, self.anatomy)
            if mirrored is None and is_suspect(measured, self.anatomy):
                mirrored = is_mirrored(measured, voxels, volume, self.segmenter)
            measurements.append(measured)
            labels.append(found.labels)
            if volume.time_index is None or volume.phase is not None:
                written.append(self._save(volume, labels.pop()))
        if labels:
            written.append(self._save(volumes[0], np.stack(labels, axis=-1)))
        for measured in measurements[first:]:
            measured.mirrored = bool(mirrored)
        return written

    def _save(self, volume: Volume, labels: np.ndarray) -> Path:
        path = self.output_dir / f"{self.names[volume]}_seg.nii.gz"
        with whole_file(path) as draft:
            nib.save(label_image(volume.storage.outside(labels), nib.load(volume.image)), draft)
        return path

    def _pictures(self, result: PatientResult, frames: dict[int, tuple[Volume, Any, Any]]) -> list[Path]:
        """Draw ED, then ES. Without phases, draw the first few volumes only: there may be a hundred."""
        phases = {number: one.phase for number, one in enumerate(result.volumes) if one.phase}
        shown = sorted(phases, key=lambda number: phases[number]) or list(frames)[:4]
        paths = []
        for number in shown:
            volume, voxels, labels = frames[number]
            one = result.volumes[number]
            name = self.names[volume]
            name = f"{name}_{one.phase}" if volume.phase is None and one.phase else name
            path = self.output_dir / f"{name}{PICTURE}"
            with whole_file(path) as draft:
                write_overlay(draft, voxels, labels, volume.spacing, self.anatomy, one)
            paths.append(path)
        return paths

    def _fingerprint(self, volumes: list[Volume], body: Body) -> str:
        files = {volume.image: volume.image.stat() for volume in volumes}
        parts = [(str(path.resolve()), status.st_size, status.st_mtime_ns) for path, status in files.items()]
        frames = [(volume.time_index, volume.phase) for volume in volumes]
        return hashlib.blake2b(
            repr((self.provenance, parts, frames, body, self.pdf, self.earlier)).encode(), digest_size=16
        ).hexdigest()

    def _tell(self, outcome: PatientResult | DataError, count: str) -> None:
        """One line per patient as soon as it is done, and one per flag."""
        if self.quiet:
            return
        if isinstance(outcome, DataError):
            print(f"{count}not segmented: {printable(outcome)}", flush=True)
            return
        name = printable(outcome.patient)
        shown = [one for one in outcome.values if one.name.endswith(KEY_FIGURES)] or outcome.values[:6]
        print(f"{count}{name}: {', '.join(f'{value.name} {value}' for value in shown)}", flush=True)
        for flag in outcome.flags:
            print(f"{name}: CHECK: {flag}", flush=True)

    def _tell_end(self, results: list[PatientResult]) -> None:
        if self.quiet:
            return
        shown = (value for result in results for value in result.values if value.name.endswith(KEY_FIGURES))
        for caution, names in cautions_of(shown).items():
            print(f"{', '.join(names)}: {caution}")
        flagged = sum(bool(result.flags) for result in results)
        patients = f"{len(results)} patient{'s' * (len(results) != 1)}"
        print(f"{patients} written to {self.output_dir}, {flagged} to check: open {self.output_dir / INDEX}. {NOTICE}")


@dataclass(frozen=True)
class Finished:
    """What an earlier run left of a patient."""

    measurements: list[Measurement]
    pictures: list[Path]


def _finished(path: Path, fingerprint: str) -> Finished | None:
    """The result of an earlier run, if it had the same input and all of its files are still there."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        whole = all(path.with_name(name).is_file() for name in content["files"])
        if content["fingerprint"] != fingerprint or not whole:
            return None
        pictures = [path.with_name(name) for name in content["files"] if name.endswith(PICTURE)]
        return Finished([Measurement(**one) for one in content["volumes"]], pictures)
    except (OSError, *UNUSABLE):
        return None


def measurements_of(results: Path, patient: str) -> list[Measurement]:
    """The measurements of a finished patient in a folder of results; none if it is not there."""
    path = results / f"{page_name(patient)}{DONE}"
    return [Measurement(**one) for one in read_json(path)["volumes"]] if path.is_file() else []


def label_image(labels: np.ndarray, image: nib.Nifti1Image) -> nib.Nifti1Image:
    """A label map with the input's own affine, voxel sizes and units."""
    header = image.header.copy()
    header.set_data_dtype(np.uint8)
    header["cal_min"] = header["cal_max"] = 0  # the display range of the grey values does not apply to class labels
    header["scl_slope"], header["scl_inter"] = 1, 0
    header["descrip"] = NOTICE.encode()[:79]
    return type(image)(np.ascontiguousarray(labels), image.affine, header)
