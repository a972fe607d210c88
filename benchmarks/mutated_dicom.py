"""Runs damaged, incomplete and strange DICOM exports through inference, and counts outcomes by class.

    python benchmarks/mutated_dicom.py --count 300

Every mutation changes a small cine series and states what must happen: the series is refused in one sentence, it is
mended and a note says so, or the change is harmless, and label maps and DICOM-SEG files are those of the unchanged
series. Anything else is a failure.
"""

import contextlib
import io
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom
import torch
from outcomes import REFUSED, Counts, outcome_of, report
from torch import nn

from fclseg.anatomy.base import EjectionFraction
from fclseg.anatomy.families.plain import from_labels
from fclseg.dicom.importing import import_folder
from fclseg.dicom.results import write_phases
from fclseg.dicom.segmentation import read_segmentation
from fclseg.inference.cases import find_cases
from fclseg.inference.function import PatientResult
from fclseg.inference.patients import Inference
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import TrainedModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "dicom"))
from series_writer import write_series  # a cine series as a scanner exports it

SPACING, RADII, SLICES = (1.5, 1.25, 8.0), (14, 8, 11), 4
RIGHT, EITHER, MENDED, MENDABLE = "right", "either", "mended", "mendable"
ALLOWED = {EITHER: {REFUSED, RIGHT, MENDED}, MENDABLE: {REFUSED, MENDED}}
Random = np.random.Generator
GEOMETRY = ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "Rows", "Columns")
UNNEEDED = (
    "PatientName", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime", "StudyID", "AccessionNumber",
    "ReferringPhysicianName", "SeriesNumber", "Manufacturer", "PatientSize", "PatientWeight", "HeartRate", "PatientID",
    "SliceThickness", "InstanceNumber", "PositionReferenceIndicator",
)  # fmt: skip


class Threshold(nn.Module):
    """A network whose correct answer is known: bright pixels are structure 1."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([0.5 - images, images - 0.5], dim=1) * 40


def beating_disc() -> np.ndarray:
    x, y = np.meshgrid(np.arange(32) * SPACING[0], np.arange(36) * SPACING[1], indexing="ij")
    distance = np.hypot(x - 24, y - 22)[:, :, None, None] + np.arange(SLICES)[None, None, :, None]
    noise = np.random.default_rng(0).integers(0, 9, (32, 36, SLICES, len(RADII)))
    return ((distance < np.array(RADII)) * 800 + 100 + noise).astype(np.uint16)


Change = Callable[[list[Path], Random], None]


@dataclass(frozen=True)
class Mutation:
    name: str
    change: Change
    expected: str


def one(files: list[Path], random: Random) -> list[Path]:
    return [files[int(random.integers(len(files)))]]


def edit(
    chosen: Callable[[list[Path], Random], list[Path]], change: Callable[[pydicom.Dataset, Random], None]
) -> Change:
    def apply(files: list[Path], random: Random) -> None:
        for path in chosen(files, random):
            dataset = pydicom.dcmread(path)
            change(dataset, random)
            dataset.save_as(path, enforce_file_format=True)

    return apply


def every(files: list[Path], random: Random) -> list[Path]:
    return files


def without(names: tuple[str, ...]) -> Callable[[pydicom.Dataset, Random], None]:
    def remove(dataset: pydicom.Dataset, random: Random) -> None:
        name = names[int(random.integers(len(names)))]
        if name in dataset:
            delattr(dataset, name)

    return remove


def unknown(files: list[Path], random: Random) -> None:
    """The same tag is removed from all files, as by an anonymiser."""
    name = UNNEEDED[int(random.integers(len(UNNEEDED)))]
    edit(every, without((name,)))(files, random)


def raw(tag: str, values: tuple[bytes, ...]) -> Callable[[pydicom.Dataset, Random], None]:
    """A value that the library would not write by itself."""

    def spoil(dataset: pydicom.Dataset, random: Random) -> None:
        element = dataset[tag]
        value = values[int(random.integers(len(values)))]
        dataset[tag] = pydicom.dataelem.RawDataElement(
            element.tag, element.VR, len(value) + len(value) % 2, value + b" " * (len(value) % 2), 0, False, True
        )

    return spoil


def setting(**values: object) -> Callable[[pydicom.Dataset, Random], None]:
    def put(dataset: pydicom.Dataset, random: Random) -> None:
        for name, value in values.items():
            setattr(dataset, name, value)

    return put


def shortened(files: list[Path], random: Random) -> None:
    (path,) = one(files, random)
    content = path.read_bytes()
    path.write_bytes(content[: int(random.integers(140, len(content) - 1))])


def changed_bytes(files: list[Path], random: Random) -> None:
    (path,) = one(files, random)
    content = bytearray(path.read_bytes())
    for place in random.integers(132, len(content) - 32 * 36 * 2, 3):  # not in the pixels: any grey value is possible
        content[place] = int(random.integers(256))
    path.write_bytes(bytes(content))


def moved(dataset: pydicom.Dataset, random: Random) -> None:
    dataset.ImagePositionPatient = [float(value) + 3.3 for value in dataset.ImagePositionPatient]


def turned(dataset: pydicom.Dataset, random: Random) -> None:
    dataset.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]


def copied(files: list[Path], random: Random) -> None:
    (path,) = one(files, random)
    (path.parent / "copy").write_bytes(path.read_bytes())


def beside(files: list[Path], random: Random) -> None:
    """What lies in every export: a report, a text file, a named pipe, an empty file, a long-axis view."""
    folder = files[0].parent
    (folder / "readme.txt").write_text("no image")
    (folder / "empty").write_bytes(b"")
    os.mkfifo(folder / "pipe")
    for name, change in (("report", without(("PixelData",))), ("long_axis", turned)):
        dataset = pydicom.dcmread(files[0])
        change(dataset, random)
        if name == "report":
            for tag in GEOMETRY:
                delattr(dataset, tag)
        dataset.SeriesInstanceUID, dataset.SOPInstanceUID = pydicom.uid.generate_uid(), pydicom.uid.generate_uid()
        dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
        dataset.save_as(folder / name, enforce_file_format=True)


NUMBERS = (b"nan", b"inf", b"12 mm", b"1,5", b"", b"9" * 200)
PLACES = (b"1\\2", b"a\\b\\c", b"nan\\1\\2")
COLOUR = {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0}


def spoilt_slope(dataset: pydicom.Dataset, random: Random) -> None:
    dataset.RescaleSlope = "1"
    raw("RescaleSlope", (b"nan", b"1e300", b"abc"))(dataset, random)


def series_per_slice(files: list[Path], random: Random) -> None:
    """As some scanners store a stack."""
    names: dict[str, str] = {}
    for path in files:
        dataset = pydicom.dcmread(path)
        dataset.SeriesInstanceUID = names.setdefault(str(dataset.ImagePositionPatient), pydicom.uid.generate_uid())
        dataset.save_as(path, enforce_file_format=True)


MUTATIONS = [
    Mutation("untouched", lambda files, random: None, RIGHT),
    Mutation("other objects beside the series", beside, RIGHT),
    Mutation("a series per slice", series_per_slice, RIGHT),
    Mutation("a file missing", lambda files, random: one(files, random)[0].unlink(), MENDABLE),
    Mutation("a file twice", copied, RIGHT),
    Mutation("a file cut short", shortened, REFUSED),
    Mutation("bytes of a header", changed_bytes, EITHER),
    Mutation("a file without geometry", edit(one, without(GEOMETRY)), MENDABLE),
    Mutation("no file has geometry", edit(every, without(GEOMETRY[:1])), REFUSED),
    Mutation("a tag removed that may be unknown", unknown, RIGHT),
    Mutation("no trigger times", edit(every, without(("TriggerTime",))), RIGHT),
    Mutation("a file without trigger time", edit(one, without(("TriggerTime",))), RIGHT),
    Mutation("a slice elsewhere", edit(one, moved), MENDABLE),
    Mutation("a slice turned", edit(one, turned), REFUSED),
    Mutation("other pixel spacing in one file", edit(one, setting(PixelSpacing=[1.0, 1.0])), REFUSED),
    Mutation("impossible pixel spacing", edit(every, setting(PixelSpacing=[0, 0])), REFUSED),
    Mutation("negative pixel spacing", edit(every, setting(PixelSpacing=[-1.5, 1.25])), REFUSED),
    Mutation("a position that is no number", edit(one, raw("ImagePositionPatient", PLACES)), REFUSED),
    Mutation("a spacing that is no number", edit(one, raw("PixelSpacing", NUMBERS)), MENDABLE),
    Mutation("a weight that is no number", edit(every, raw("PatientWeight", NUMBERS)), RIGHT),
    Mutation("a trigger time that is no number", edit(one, raw("TriggerTime", (b"abc", b"nan"))), REFUSED),
    Mutation("a file without pixels", edit(one, without(("PixelData",))), REFUSED),
    Mutation("too few pixels", edit(one, setting(PixelData=b"\0" * 64)), REFUSED),
    Mutation("more rows than pixels", edit(every, setting(Rows=60000)), REFUSED),
    Mutation("colour", edit(every, setting(**COLOUR)), REFUSED),
    Mutation("a rescale slope that is no number", edit(one, spoilt_slope), REFUSED),
]


def results(folder: Path, segmenter: Segmenter) -> tuple[list[np.ndarray], bool]:
    """Label map and DICOM-SEG files of an export, as ``fclseg segment`` writes them, and whether it was mended."""
    out = folder / "out"
    imported = import_folder(folder / "in", out / "images", keep_sources=True)
    cases = find_cases(str(out / "images"), all_phases=True)
    cases = replace(cases, refused=(*cases.refused, *imported.problems))
    anatomy = segmenter.model.anatomy

    def export(result: PatientResult, pdf: Path | None) -> list[Path]:
        return write_phases(result.patient, result.volumes, out, imported, anatomy)

    Inference(segmenter, cases, out, export=export).run()
    labels = [np.asarray(nib.load(path).dataobj) for path in sorted(out.glob("*_seg.nii.gz"))]
    return labels + [read_segmentation(path) for path in sorted(out.glob("*.dcm"))], any(imported.notes.values())


def outcome(mutation: Mutation, folder: Path, random: Random, segmenter: Segmenter, known: list[np.ndarray]) -> str:
    """The outcome for one mutated export: refused, right, wrong, hang, traceback or more than a sentence."""
    write_series(folder / "in", beating_disc(), SPACING)
    mutation.change(sorted((folder / "in").iterdir()), random)

    def attempt() -> str:
        found, mended = results(folder, segmenter)
        if mended:
            return MENDED
        return RIGHT if len(found) == len(known) and all(map(np.array_equal, found, known)) else "wrong"

    return outcome_of(attempt)


def run(count: int, seed: int = 0) -> tuple[Counts, list[str]]:
    """Outcomes by class, and all failures."""
    anatomy = replace(from_labels({"structures": {"1": "LV"}}, "-"), measurements=(EjectionFraction("LV"),))
    segmenter = Segmenter(TrainedModel(Threshold(), anatomy, 32, 1.25, "demo"))  # type: ignore[arg-type]
    counts: Counts = Counter()
    faults = []
    known: list[np.ndarray] = []
    for number in range(-1, count):  # first the series as it is
        mutation = MUTATIONS[max(number, 0) % len(MUTATIONS)]
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
            folder = Path(name)
            if number < 0:
                write_series(folder / "in", beating_disc(), SPACING)
                known, _ = results(folder, segmenter)
                continue
            with contextlib.redirect_stderr(io.StringIO()):
                found = outcome(mutation, folder, np.random.default_rng([seed, number]), segmenter, known)
            left = [path.name for path in folder.rglob(".*")]
        counts[mutation.name, found] += 1
        allowed = ALLOWED.get(mutation.expected, {mutation.expected})
        if found not in allowed or left:
            faults.append(f"number {number}, {mutation.name}: {found} {left}")
    return counts, faults


if __name__ == "__main__":
    sys.exit(report(__doc__, "mutated DICOM exports", run))
