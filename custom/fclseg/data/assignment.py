"""A user's own list of which patient is at which site, as CSV or JSON."""

import csv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fclseg.documents import read_json, read_text
from fclseg.errors import DataError


def read_assignment(path: Path | str) -> dict[str, str]:
    """Patient -> site from a CSV with the columns patient, site, or a JSON {patient: site} or {site: [patients]}."""
    path = Path(path)
    pairs = _json_pairs(path) if path.suffix.lower() == ".json" else _csv_pairs(path)
    check_unique([patient for patient, _ in pairs], str(path))
    return dict(pairs)


def check_unique(patients: Iterable[str], source: str) -> None:
    repeated = [patient for patient, count in Counter(patients).items() if count > 1]
    if repeated:
        raise DataError(f"{source}: patient {repeated[0]} appears more than once; list each patient once")


def _csv_pairs(path: Path) -> list[tuple[str, str]]:
    try:
        rows = list(csv.DictReader(read_text(path).splitlines()))
    except csv.Error as error:
        raise DataError(f"{path}: is not a CSV table ({error}); write the columns patient,site") from None
    pairs = [((row.get("patient") or "").strip(), (row.get("site") or "").strip()) for row in rows]
    if not pairs:
        raise DataError(f"{path}: has no rows; write the columns patient,site and one row per patient")
    for number, pair in enumerate(pairs, start=2):
        if not all(pair):
            raise DataError(f"{path}: row {number} has no patient or no site; the first line must be patient,site")
    return pairs


def _json_pairs(path: Path) -> list[tuple[str, str]]:
    document = read_json(path)
    if isinstance(document, dict) and document:
        if all(isinstance(site, str) for site in document.values()):
            return list(document.items())
        if all(isinstance(group, list) for group in document.values()):
            empty = [site for site, group in document.items() if not group]
            if empty:
                raise DataError(f"{path}: {empty[0]} has no patients; remove it or add patients")
            return [(str(patient), site) for site, group in document.items() for patient in group]
    raise DataError(f'{path}: must be {{"patient": "site", ...}} or {{"site": ["patient", ...], ...}}; correct it')
