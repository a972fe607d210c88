"""``fclseg data import``: converts DICOM series to the training layout, with codes instead of names."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib

from fclseg.dicom.frames import Source
from fclseg.dicom.read import find_series, to_nifti
from fclseg.dicom.series import Cine
from fclseg.documents import read_json, understood
from fclseg.errors import DataError
from fclseg.files import make_folder, whole_file, write_text

SOURCES = "sources.json"


@dataclass(frozen=True)
class Imported:
    patients: dict[str, Path]  # code -> 4D or 3D NIfTI file
    key: Path
    problems: list[str]


def import_folder(source: Path, out: Path, *, keep_sources: bool = False) -> Imported:
    """Write ``OUT/patient001/...`` for each series. The key from codes to names is written next to ``OUT``, not in it.

    ``keep_sources`` also records the source files of each patient, for results that go back to DICOM.
    """
    if not source.is_dir():
        raise DataError(f"{source}: there is no such folder; check the path")
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out}: is not empty; choose a new folder, so that codes are not mixed up")
    found = find_series(source)
    if not found.series:
        raise DataError(found.problems[0])
    patients: dict[str, Path] = {}
    lines = []
    make_folder(out)
    for number, cine in enumerate(sorted(found.series, key=_order), start=1):
        code = f"patient{number:03d}"
        try:
            patients[code] = _write(cine, out / code, code)
            if keep_sources:
                _write_sources(out / code, cine)
        except DataError as error:
            found.problems.append(str(error))
            continue
        first = cine.first
        lines.append(
            (code, getattr(first, "PatientID", ""), getattr(first, "PatientName", ""), first.SeriesInstanceUID)
        )
    key = out.with_name(f"{out.name}_key.csv")
    with whole_file(key) as draft, open(draft, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("code", "patient_id", "name", "series"), *lines])
    key.chmod(0o600)
    return Imported(patients, key, found.problems)


def read_sources(folder: Path) -> list[list[Source]]:
    """Where the images of an imported patient come from, by slice and phase."""
    file = folder / SOURCES
    with understood(file, "remove the folder of results and run the command again"):
        return [[Source(Path(path), frame) for path, frame in phases] for phases in read_json(file)]


def _order(cine: Cine) -> tuple[str, str]:
    return str(getattr(cine.first, "PatientID", "")), str(cine.first.SeriesInstanceUID)


def _write(cine: Cine, folder: Path, code: str) -> Path:
    image = to_nifti(cine)
    make_folder(folder)
    path = folder / f"{code}_{'4d' if image.ndim == 4 else 'frame01'}.nii.gz"
    with whole_file(path) as draft:
        nib.save(image, draft)
    entries = {"NbFrame": str(len(cine.files[0]))}
    for name, tag, factor in (
        ("Height", "PatientSize", 100),
        ("Weight", "PatientWeight", 1),
        ("HeartRate", "HeartRate", 1),
    ):
        value = getattr(cine.first, tag, None)
        if value not in (None, ""):
            entries[name] = f"{float(value) * factor:.1f}"
    write_text(folder / "Info.cfg", "".join(f"{name}: {value}\n" for name, value in sorted(entries.items())))
    return path


def _write_sources(folder: Path, cine: Cine) -> None:
    """Record the sources. Do not use this for data that you share: paths can contain patient names."""
    places = [[(str(source.path.resolve()), source.frame) for source in phases] for phases in cine.files]
    write_text(folder / SOURCES, json.dumps(places))
