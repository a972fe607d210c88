"""Reads a whole folder like training does, and lists everything that is wrong with it."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
from tqdm import tqdm

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.folders import AUTO, scan_folder
from fclseg.anatomy.records import Volume, read_images
from fclseg.data.preprocess import UNLABELLED, check_label, grey_range, labelled_slices
from fclseg.data.sites import Splits
from fclseg.errors import DataError


@dataclass
class PatientSummary:
    """One line of the report."""

    patient: str
    site: str | None
    labelled: int = 0
    unlabelled: int = 0
    slices: int = 0  # labelled ones
    without: int = 0  # slices of labelled frames that nobody has labelled
    grids: set[tuple[int, ...]] = field(default_factory=set)
    spacings: set[tuple[float, ...]] = field(default_factory=set)
    codes: set[str] = field(default_factory=set)  # directions of the files' axes


@dataclass
class FolderReport:
    anatomy: Anatomy
    patients: list[PatientSummary]
    problems: list[str]  # each a sentence that names its file
    warnings: list[str] = field(default_factory=list)

    @property
    def labelled(self) -> int:
        return sum(patient.labelled for patient in self.patients)

    @property
    def partly(self) -> str:
        """What is labelled, if some frames are labelled only in part; otherwise empty."""
        without = sum(patient.without for patient in self.patients)
        labelled = sum(patient.slices for patient in self.patients)
        return f"{labelled} labelled slices, {without} slices of these frames without labels" if without else ""

    @property
    def unlabelled(self) -> int:
        return sum(patient.unlabelled for patient in self.patients)


def check_folder(root: Path | str, anatomy: str = AUTO, splits: Path | None = None) -> FolderReport:
    """Check names, headers and every voxel of a folder. With ``splits``, also check that the splits file fits."""
    scan = scan_folder(root, anatomy)
    check = _VoxelCheck(scan.problems)
    files = [list(group) for _, group in groupby(scan.volumes, key=lambda volume: volume.image)]
    for volumes in tqdm(files, "reading", unit="file", disable=None, leave=False):
        check.read(volumes)
    if splits is not None:
        _check_splits(splits, {volume.patient for volume in scan.volumes}, scan.problems)
    problems = list(dict.fromkeys(scan.problems))
    rows = _summarise(scan.volumes, check)
    return FolderReport(scan.anatomy, rows, problems, _warnings(scan.volumes))


def _warnings(volumes: Iterable[Volume]) -> list[str]:
    """Remarks on how files are stored. All files are converted to one orientation when they are read."""
    codes: dict[str, list[Volume]] = {}
    remarks: dict[str, list[Volume]] = {}
    for volume in volumes:
        codes.setdefault(volume.storage.codes, []).append(volume)
        if volume.storage.remark:
            remarks.setdefault(volume.storage.remark, []).append(volume)
    found = [f"{remark}: {len(where)} volumes, first {where[0].image}" for remark, where in remarks.items()]
    if len(codes) > 1:
        counts = ", ".join(f"{len(where)} {code}" for code, where in sorted(codes.items()))
        found.append(f"axes are stored in different directions ({counts}); all are converted to one when they are read")
    return found


class _VoxelCheck:
    def __init__(self, problems: list[str]):
        self.problems = problems
        self.grids: dict[Volume, tuple[int, ...]] = {}
        self.slices: dict[Volume, np.ndarray] = {}  # whether each slice of a label map is labelled
        self._seen: dict[bytes, Volume] = {}

    def read(self, volumes: list[Volume]) -> None:
        """Check the volumes of one file. An unreadable file is one problem, regardless of its number of frames."""
        try:
            for volume, voxels in read_images(volumes):
                self.grids[volume] = voxels.shape
                self._try(grey_range, voxels, volume)
                self._try(self._check_copy, voxels, volume)
        except DataError as error:
            self.problems.append(str(error))
        for volume in volumes:
            if volume.label:
                self._try(self._check_label, volume)

    def _try(self, check: Callable[..., object], *arguments: object) -> None:
        try:
            check(*arguments)
        except DataError as error:
            self.problems.append(str(error))

    def _check_label(self, volume: Volume) -> None:
        label = volume.read_label()
        check_label(label, label.shape, volume)  # shapes have already been compared when headers were scanned
        self.slices[volume] = labelled_slices(label)
        if not self.slices[volume].any():
            raise DataError(
                f"{volume.label}: nothing is labelled in it ({UNLABELLED} everywhere); label it or remove it"
            )

    def _check_copy(self, voxels: np.ndarray, volume: Volume) -> None:
        """Report the same image under two names: it could be in training and validation at once."""
        digest = hashlib.blake2b(np.ascontiguousarray(voxels).tobytes(), digest_size=16).digest()
        first = self._seen.setdefault(digest, volume)
        if first.patient != volume.patient:
            raise DataError(f"{volume.image}: is the same image as {first.image}; remove one of the two patients")


def _check_splits(path: Path, patients: set[str], problems: list[str]) -> None:
    try:
        Splits.load(path).check_patients(patients, str(path))
    except DataError as error:
        problems.append(str(error))


def _summarise(volumes: Iterable[Volume], check: _VoxelCheck) -> list[PatientSummary]:
    rows: dict[str, PatientSummary] = {}
    for volume in volumes:
        row = rows.setdefault(volume.patient, PatientSummary(volume.patient, volume.site))
        row.labelled += volume.label is not None
        row.unlabelled += volume.label is None
        row.spacings.add(volume.spacing)
        row.codes.add(volume.storage.codes)
        if volume in check.grids:
            row.grids.add(check.grids[volume])
        if volume in check.slices:
            row.slices += int(check.slices[volume].sum())
            row.without += int((~check.slices[volume]).sum())
    return list(rows.values())
