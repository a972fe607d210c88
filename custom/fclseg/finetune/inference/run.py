"""The whole of inference: segment, measure, draw and report every patient, and write everything to one folder."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from tqdm import tqdm

from fclseg.anatomy.records import Volume, read_images
from fclseg.documents import UNUSABLE
from fclseg.errors import DataError
from fclseg.files import make_folder, whole_file, write_text
from fclseg.finetune.inference import NOTICE
from fclseg.finetune.inference.body import body_of
from fclseg.finetune.inference.cases import Cases, output_names
from fclseg.finetune.inference.function import Body, PatientResult, patient_result
from fclseg.finetune.inference.measure import Measurement, measure
from fclseg.finetune.inference.overlay import write_overlay
from fclseg.finetune.inference.report.page import Provenance, page_name, write_index, write_patient
from fclseg.finetune.inference.segment import Segmenter
from fclseg.finetune.inference.tables import write_tables
from fclseg.text import printable

DONE = "_result.json"
"""Suffix of the file that marks a patient as finished, so that the same command continues where it stopped."""


class Inference:
    """``run()`` writes NAME_seg.nii.gz and NAME_overlay.png per volume, a report per patient, tables and an index."""

    def __init__(
        self,
        segmenter: Segmenter,
        cases: Cases | Sequence[Volume],
        output_dir: str | Path,
        checkpoint: str | Path | None = None,
        workers: int = 1,
    ):
        self.segmenter, self.output_dir, self.workers = segmenter, Path(output_dir), workers
        self.cases = cases if isinstance(cases, Cases) else Cases(tuple(cases))
        self.anatomy = segmenter.model.anatomy
        self.provenance = Provenance.of(segmenter.model, checkpoint)
        self.names = dict(zip(self.cases.volumes, output_names(self.cases.volumes), strict=True))

    def run(self) -> list[PatientResult]:
        """One bad file does not stop the others. It is reported at the end."""
        make_folder(self.output_dir)
        results, refused = [], list(self.cases.refused)
        patients = list(self.cases.by_patient())
        for outcome in tqdm(self._outcomes(patients), "segmenting", len(patients), unit="patient", disable=None):
            if isinstance(outcome, DataError):
                refused.append(str(outcome))
            else:
                results.append(outcome)
        if results:
            write_tables(self.output_dir, results, self.anatomy)
            write_index(self.output_dir, results, refused, self.anatomy, self.provenance)
            self._tell(results)
        if refused:
            raise DataError(
                f"{len(refused)} of {len(self.cases) + len(self.cases.refused)} refused: {' / '.join(refused)}"
            )
        return results

    def _outcomes(self, patients: list[tuple[str, list[Volume]]]) -> Iterator[PatientResult | DataError]:
        """Results in the order of the patients, computed by several processes if asked for."""
        if self.workers == 1:
            yield from map(self.attempt, patients)
            return
        with ProcessPoolExecutor(self.workers, mp_context=get_context("spawn")) as pool:
            yield from pool.map(self.attempt, patients)

    def attempt(self, patient: tuple[str, list[Volume]]) -> PatientResult | DataError:
        """The result of a patient, or a sentence that says why there is none."""
        try:
            return self.patient(*patient)
        except DataError as error:
            return error

    def patient(self, patient: str, volumes: list[Volume]) -> PatientResult:
        """Segment one patient, or reuse the result of an earlier run."""
        done = self.output_dir / f"{page_name(patient)}{DONE}"
        fingerprint = self._fingerprint(volumes)
        if (finished := _finished(done, fingerprint)) is not None:
            return patient_result(patient, finished[0], self.anatomy, finished[1])
        measurements: list[Measurement] = []
        frames: dict[int, tuple[Volume, np.ndarray, np.ndarray]] = {}
        for _, group in groupby(volumes, key=lambda volume: volume.image):
            self._image(list(group), measurements, frames)
        body = body_of(volumes)
        result = patient_result(patient, measurements, self.anatomy, body)
        pictures = self._pictures(result, frames)
        write_patient(self.output_dir, page_name(patient), result, pictures, self.anatomy, self.provenance)
        content = {"fingerprint": fingerprint, "body": asdict(body), "volumes": [asdict(one) for one in measurements]}
        write_text(done, json.dumps(content))
        return result

    def _image(
        self, volumes: list[Volume], measurements: list[Measurement], frames: dict[int, tuple[Volume, Any, Any]]
    ) -> None:
        """Segment all requested frames of one file. The heart is located in the first of them."""
        near, labels = None, []
        for volume, voxels in read_images(volumes):
            found = self.segmenter(voxels, volume, near)
            near = found.centre or near
            who = {"patient": volume.patient, "phase": volume.phase, "image": volume.image.name, "frame": volume.frame}
            frames[len(measurements)] = (volume, voxels, found.labels)
            measurements.append(measure(found, volume.spacing, self.anatomy, **who))
            labels.append(found.labels)
            if volume.time_index is None or volume.phase is not None:
                self._save(volume, labels.pop())
        if labels:
            self._save(volumes[0], np.stack(labels, axis=-1))

    def _save(self, volume: Volume, labels: np.ndarray) -> None:
        with whole_file(self.output_dir / f"{self.names[volume]}_seg.nii.gz") as draft:
            nib.save(label_image(volume.storage.outside(labels), nib.load(volume.image)), draft)

    def _pictures(self, result: PatientResult, frames: dict[int, tuple[Volume, Any, Any]]) -> list[Path]:
        """Draw ED and ES. Without phases, draw the first few volumes only: there may be a hundred."""
        shown = [number for number, one in enumerate(result.volumes) if one.phase] or list(frames)[:4]
        paths = []
        for number in shown:
            volume, voxels, labels = frames[number]
            one = result.volumes[number]
            name = self.names[volume]
            name = f"{name}_{one.phase}" if volume.phase is None and one.phase else name
            path = self.output_dir / f"{name}_overlay.png"
            with whole_file(path) as draft:
                write_overlay(draft, voxels, labels, volume.spacing, self.anatomy, one)
            paths.append(path)
        return paths

    def _fingerprint(self, volumes: list[Volume]) -> str:
        files = {volume.image: volume.image.stat() for volume in volumes}
        parts = [(str(path.resolve()), status.st_size, status.st_mtime_ns) for path, status in files.items()]
        frames = [(volume.time_index, volume.phase) for volume in volumes]
        return hashlib.blake2b(repr((self.provenance, parts, frames)).encode(), digest_size=16).hexdigest()

    def _tell(self, results: list[PatientResult]) -> None:
        for result in results:
            for value in result.values:
                caution = f" ({value.caution})" if value.caution else ""
                print(f"{printable(result.patient)}: {value.name} {value}{caution}")
            for flag in result.flags:
                print(f"{printable(result.patient)}: CHECK: {flag}")
        if self.segmenter.model.about:
            print(f"weights: {self.segmenter.model.about}")
        flagged = sum(bool(result.flags) for result in results)
        patients = f"{len(results)} patient{'s' * (len(results) != 1)}"
        print(f"{patients} written to {self.output_dir}, {flagged} to check. {NOTICE}")


def _finished(path: Path, fingerprint: str) -> tuple[list[Measurement], Body] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["fingerprint"] != fingerprint:
            return None
        return [Measurement(**one) for one in content["volumes"]], Body(**content["body"])
    except (OSError, *UNUSABLE):
        return None


def label_image(labels: np.ndarray, image: nib.Nifti1Image) -> nib.Nifti1Image:
    """A label map with the input's own affine, voxel sizes and units."""
    header = image.header.copy()
    header.set_data_dtype(np.uint8)
    header["cal_min"] = header["cal_max"] = 0  # the display range of the grey values does not apply to class labels
    header["scl_slope"], header["scl_inter"] = 1, 0
    header["descrip"] = NOTICE.encode()[:79]
    return type(image)(np.ascontiguousarray(labels), image.affine, header)
