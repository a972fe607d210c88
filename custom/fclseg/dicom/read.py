"""Reads cine series from a folder of DICOM files."""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fclseg.dicom.choose import choose_cine
from fclseg.dicom.frames import headers
from fclseg.dicom.series import Cine, Item, arrange
from fclseg.errors import DataError

FIRST_GROUPS = (b"\x02\x00", b"\x08\x00")
"""Files without preamble begin with the group of their meta information or of their identification."""
LONGEST_FIRST = 128
"""The first element of such a file is short."""


@dataclass
class FoundSeries:
    """The series of a folder, and one sentence for each series that cannot be read or is not wanted."""

    series: list[Cine] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def is_dicom(path: Path) -> bool:
    """Recognised by the four letters after the preamble. Files of old systems have no preamble."""
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            start = file.read(132)
    except OSError:
        return False
    return start[128:] == b"DICM" or _has_no_preamble(start)


def _has_no_preamble(start: bytes) -> bool:
    if len(start) < 12 or start[:2] not in FIRST_GROUPS or start[3] != 0:
        return False
    explicit = start[4:6].isalpha() and start[4:6].isupper()
    return explicit or 0 < int.from_bytes(start[4:8], "little") <= LONGEST_FIRST


def holds_dicom(place: Path) -> bool:
    """Whether a folder contains DICOM files, or a file is one."""
    return is_dicom(place) if place.is_file() else any(is_dicom(path) for path in files_of(place))


def find_series(place: Path) -> FoundSeries:
    """The cine series below a folder, one per exam, or of the series that a file belongs to. Private tags are not read.

    Copies of an image, as in an export that was made twice, are read once.
    """
    groups: dict[str, list[Item]] = defaultdict(list)
    found, seen, copies = FoundSeries(), set(), 0
    for path in files_of(place) if place.is_dir() else _siblings(place):
        if not is_dicom(path):
            continue
        try:
            for source, header in headers(path):
                name = (str(getattr(header, "SOPInstanceUID", "")), source.frame)
                if name[0] and name in seen:
                    copies += 1
                    continue
                seen.add(name)
                groups[str(header.SeriesInstanceUID)].append((source, header))
        except DataError as error:
            found.problems.append(str(error))
    exams: dict[tuple[str, str], list[list[Item]]] = defaultdict(list)
    for items in _with_single_slices_joined(groups).values():
        exams[_exam(items[0][1])].append(items)
    for series in exams.values():
        _add_exam(found, series)
    if copies:
        found.left_out.append(f"{place}: {copies} images are copies of others and are read once")
    if not found.series and not found.problems:
        found.problems.append(f"{place}: contains no DICOM image series; give the folder that the scanner exported")
    return found


def _siblings(path: Path) -> list[Path]:
    """The files of the series that one of its files stands for."""
    try:
        own = {str(header.SeriesInstanceUID) for _, header in headers(path)}
    except DataError:
        return [path]
    beside = [one for one in sorted(path.parent.iterdir()) if one != path and is_dicom(one)]
    same = []
    for one in beside:
        try:
            same += [one] * any(str(header.SeriesInstanceUID) in own for _, header in headers(one))
        except DataError:
            continue
    return [path, *same]


def _exam(header: Any) -> tuple[str, str]:
    return str(getattr(header, "PatientID", "")), str(getattr(header, "StudyInstanceUID", ""))


def _add_exam(found: FoundSeries, series: list[list[Item]]) -> None:
    """Add the short-axis cine of one exam. Without one, all of its series are added."""
    arranged, problems = [], []
    for items in series:
        try:
            arranged.append(arrange(items))
        except DataError as error:
            problems.append(str(error))
    cine, others = choose_cine(arranged)
    if cine is None:
        found.series += arranged
        found.problems += problems
    else:
        found.series.append(cine)
        found.left_out += others + problems


def files_of(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (path for path in (Path(place, name) for name in sorted(names)) if path.is_file())


def _with_single_slices_joined(groups: dict[str, list[Item]]) -> dict[str, list[Item]]:
    """Some scanners store each slice of a stack as a separate series. Parallel series of one study belong together."""
    joined: dict[str, list[Item]] = {}
    for name, items in groups.items():
        places = {tuple(round(float(value), 1) for value in header.ImagePositionPatient) for _, header in items}
        first = items[0][1]
        key = name
        if len(places) == 1:
            direction = tuple(round(float(value), 3) for value in first.ImageOrientationPatient)
            study, frame = getattr(first, "StudyInstanceUID", ""), getattr(first, "FrameOfReferenceUID", "")
            cine = len(items) > 1  # a localiser in the same direction is no slice of the stack
            key = repr((str(study), str(frame), direction, int(first.Rows), int(first.Columns), cine))
        joined.setdefault(key, []).extend(items)
    return joined
