"""Who the labelled patients are: hospital, vendor, group, and the half to which each belongs.

Hospital, vendor and group come from the user's table, or from ``Info.cfg`` (Centre, Vendor, Group) beside the images.
Settings are chosen on one half of the patients and reported on the other.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fclseg.anatomy.info import INFO, read_info
from fclseg.anatomy.records import Volume
from fclseg.documents import read_text
from fclseg.errors import DataError

CHOOSE, REPORT = HALVES = ("choose", "report")
UNKNOWN = ("", "NA", "N/A", "unknown")
COLUMNS = ("hospital", "vendor", "group", "spacing")


@dataclass(frozen=True)
class Person:
    """One patient of a labelled folder."""

    patient: str
    hospital: str
    vendor: str = ""
    group: str = ""
    true_spacing: bool = True  # False: millimetres and millilitres of this patient mean nothing
    half: str = CHOOSE


def read_people(volumes: Iterable[Volume], root: Path, table: Path | None = None) -> dict[str, Person]:
    """All patients of a labelled folder by name, halved."""
    stated = {} if table is None else _read_table(table, root.resolve().name)
    folders = {volume.patient: volume for volume in volumes}
    return halved(
        [
            _person(patient, volume, root, _known(read_info(volume.image.parent / INFO), stated.get(patient, {})))
            for patient, volume in folders.items()
        ]
    )


def halved(people: Sequence[Person]) -> dict[str, Person]:
    """Patients of each hospital and group in the order of their names, in turns; a single one is for choosing.

    The half depends on the whole folder only, never on which results there are.
    """
    seen: dict[tuple[str, str], int] = {}
    result = {}
    for person in sorted(people, key=lambda one: one.patient):
        kind = (person.hospital, person.group)
        turn = seen.get(kind, 0)
        seen[kind] = turn + 1
        result[person.patient] = Person(**{**vars(person), "half": HALVES[turn % 2]})
    return result


def first_of_each(people: Iterable[Person], count: int) -> list[Person]:
    """The first ``count`` patients of each hospital and group, for a quick look."""
    kinds: dict[tuple[str, str], list[Person]] = {}
    for person in people:
        kinds.setdefault((person.hospital, person.group), []).append(person)
    return [person for kind in kinds.values() for person in kind[:count]]


def _person(patient: str, volume: Volume, root: Path, known: Mapping[str, str]) -> Person:
    folder = root.resolve().name
    hospital = known.get("hospital") or (f"{folder} {known['centre']}" if "centre" in known else volume.site or folder)
    nominal = known.get("spacing", "").lower() == "nominal"
    return Person(patient, hospital, known.get("vendor", ""), known.get("group", ""), not nominal)


def _known(info: Mapping[str, str], stated: Mapping[str, str]) -> dict[str, str]:
    """Entries that say something, by lower-case name; the table's come before those of the file."""
    both = {name.lower(): value for name, value in info.items()} | dict(stated)
    return {"centre" if name == "center" else name: value for name, value in both.items() if value not in UNKNOWN}


def _read_table(path: Path, folder: str) -> dict[str, dict[str, str]]:
    """What a table says about the patients of a labelled folder; rows with another ``folder`` are about others."""
    rows = list(csv.DictReader(read_text(path).splitlines()))
    if not rows or "patient" not in rows[0] or not set(rows[0]) & set(COLUMNS):
        raise DataError(
            f"{path}: is not a table of patients; its first line names the columns: patient and {', '.join(COLUMNS)}"
        )
    return {
        row["patient"]: {name: row.get(name) or "" for name in COLUMNS if name in row}
        for row in rows
        if (row.get("folder") or folder) == folder
    }
