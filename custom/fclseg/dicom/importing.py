"""``fclseg data import``: converts DICOM series to the training layout, with codes instead of names."""

import contextlib
import csv
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib

from fclseg.dicom.choose import is_short_axis
from fclseg.dicom.frames import Source
from fclseg.dicom.person import about
from fclseg.dicom.phases import nearest
from fclseg.dicom.read import files_of, find_series
from fclseg.dicom.series import Cine
from fclseg.dicom.volume import to_nifti
from fclseg.documents import UNUSABLE, read_json, understood
from fclseg.errors import DataError, FCLSegError
from fclseg.files import make_folder, whole_file, write_text

SOURCES, RECORD, NOTES = "sources.json", "import.json", "notes.json"


@dataclass(frozen=True)
class Imported:
    patients: dict[str, Path]  # code -> 4D or 3D NIfTI file
    key: Path
    problems: list[str]
    left_out: list[str]  # series that are no short-axis cine, beside one that is
    notes: dict[str, list[str]]  # code -> what was not as expected in the images, and what was done about it


def import_folder(source: Path, out: Path, *, keep_sources: bool = False, cine_only: bool = False) -> Imported:
    """Write ``OUT/patient001/...`` for each series. The key from codes to names is written next to ``OUT``, not in it.

    ``keep_sources`` also records the source files of each patient, for results that go back to DICOM. With it, a folder
    that was imported before from the same files is used again. An interrupted import leaves no ``OUT``. ``cine_only``
    refuses exams without a short-axis cine. ``source`` may also be one file, which stands for its series.
    """
    if not source.exists():
        raise DataError(f"{source}: there is no such folder or file; check the path")
    key = out.with_name(f"{out.name}_key.csv")
    if out.exists() and any(out.iterdir()):
        if keep_sources and (earlier := _imported_before(source, out, key)) is not None:
            return earlier
        raise DataError(f"{out}: is not empty; choose a new folder, so that codes are not mixed up")
    found = find_series(source)
    if cine_only and not any(is_short_axis(cine) for cine in found.series):
        found.problems.append(f"{source}: no series is a short-axis cine (4 or more oblique slices, several phases)")
        found.series = []
    if not found.series:
        raise _refusal(found.problems)
    patients: dict[str, Path] = {}
    notes: dict[str, list[str]] = {}
    lines = []
    with _draft_folder(out) as draft:
        for number, cine in enumerate(sorted(found.series, key=_order), start=1):
            code = f"patient{number:03d}"
            try:
                path, notes[code] = _write(cine, draft / code, code)
                patients[code] = out / path.relative_to(draft)
                if keep_sources:
                    _write_sources(draft / code, cine)
            except DataError as error:
                found.problems.append(str(error))
                shutil.rmtree(draft / code, ignore_errors=True)
                continue
            first = cine.first
            lines.append(
                (code, getattr(first, "PatientID", ""), getattr(first, "PatientName", ""), first.SeriesInstanceUID)
            )
        if not patients:
            raise _refusal(found.problems)
        imported = Imported(patients, key, found.problems, found.left_out, notes)
        if keep_sources:
            files = {code: str(path.relative_to(out)) for code, path in patients.items()}
            content = {"source": _fingerprint(source), "patients": files, "notes": notes}
            write_text(draft / RECORD, json.dumps(content | {"problems": found.problems, "left_out": found.left_out}))
        with whole_file(key) as text, open(text, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("code", "patient_id", "name", "series"), *lines])
        key.chmod(0o600)
    return imported


def _refusal(problems: list[str]) -> DataError:
    """The first reason why no patient is left, with the number of the others."""
    others = len(set(problems)) - 1
    return DataError(problems[0] + (f" ({others} more files or series have problems)" if others else ""))


@contextlib.contextmanager
def _draft_folder(out: Path) -> Iterator[Path]:
    """A folder that becomes ``out`` if the block succeeds and is removed otherwise."""
    draft = out.with_name(f".part.{out.name}")
    shutil.rmtree(draft, ignore_errors=True)  # of an import that was killed
    make_folder(draft)
    try:
        yield draft
        if out.exists():
            out.rmdir()  # it is empty
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _imported_before(source: Path, out: Path, key: Path) -> Imported | None:
    """What an earlier import of the same files wrote; None if ``out`` is something else."""
    try:
        content = read_json(out / RECORD)
        patients = {code: out / path for code, path in content["patients"].items()}
        same = content["source"] == _fingerprint(source) and all(path.is_file() for path in patients.values())
        return Imported(patients, key, content["problems"], content["left_out"], content["notes"]) if same else None
    except (FCLSegError, OSError, *UNUSABLE):
        return None


def _fingerprint(source: Path) -> str:
    """Of the names, sizes and times of all files: whether an export has changed."""
    paths = files_of(source) if source.is_dir() else [source]
    files = [(path.relative_to(source.parent).as_posix(), path.stat()) for path in paths]
    parts = [(name, status.st_size, status.st_mtime_ns) for name, status in files]
    return hashlib.blake2b(repr((str(source.resolve()), parts)).encode(), digest_size=16).hexdigest()


def read_sources(folder: Path) -> list[list[Source]]:
    """Where the images of an imported patient come from, by slice and phase."""
    file = folder / SOURCES
    with understood(file, "remove the folder of results and run the command again"):
        return [[Source(Path(path), frame) for path, frame in phases] for phases in read_json(file)]


def _order(cine: Cine) -> tuple[str, str]:
    return str(getattr(cine.first, "PatientID", "")), str(cine.first.SeriesInstanceUID)


def _write(cine: Cine, folder: Path, code: str) -> tuple[Path, list[str]]:
    notes = list(cine.remarks)
    image = to_nifti(cine, notes)
    make_folder(folder)
    path = folder / f"{code}_{'4d' if image.ndim == 4 else 'frame01'}.nii.gz"
    with whole_file(path) as draft:
        nib.save(image, draft)
    entries = {"NbFrame": str(cine.phases)} | about(cine.first)
    write_text(folder / "Info.cfg", "".join(f"{name}: {value}\n" for name, value in sorted(entries.items())))
    if notes:
        write_text(folder / NOTES, json.dumps(notes))
    return path, notes


def _write_sources(folder: Path, cine: Cine) -> None:
    """Record the sources. Do not use this for data that you share: paths can contain patient names."""
    places = []
    for position, sources in enumerate(cine.files):
        own = [sources[nearest(mix)] for mix in cine.mixes(position)]
        places.append([(str(source.path.resolve()), source.frame) for source in own])
    write_text(folder / SOURCES, json.dumps(places))
