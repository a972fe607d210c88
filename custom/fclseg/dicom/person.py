"""What a header says about the patient's body: for values per body surface, normal ranges and cardiac output."""

import contextlib
from datetime import date
from typing import Any

SEXES = {"M": "male", "F": "female"}
YEARS = {"Y": 1.0, "M": 1 / 12, "W": 7 / 365.25, "D": 1 / 365.25}
NUMBERS = (("Height", "PatientSize", 100), ("Weight", "PatientWeight", 1), ("HeartRate", "HeartRate", 1))


def about(header: Any) -> dict[str, str]:
    """Entries for ``Info.cfg``; a value that is absent or damaged is left out."""
    entries = {}
    for name, tag, factor in NUMBERS:
        with contextlib.suppress(ValueError, TypeError):
            value = getattr(header, tag, None)
            if value not in (None, ""):
                entries[name] = f"{float(value) * factor:.1f}"
    if (sex := SEXES.get(str(getattr(header, "PatientSex", "") or "").strip().upper())) is not None:
        entries["Sex"] = sex
    if (age := age_of(header)) is not None:
        entries["Age"] = f"{age:.0f}"
    return entries


def age_of(header: Any) -> float | None:
    """In years: as stated, or from the dates of birth and of the exam."""
    stated = str(getattr(header, "PatientAge", "") or "").strip().upper()
    if stated[:-1].isdigit() and stated[-1] in YEARS:
        return int(stated[:-1]) * YEARS[stated[-1]]
    with contextlib.suppress(ValueError):
        born, seen = (
            date.fromisoformat(str(getattr(header, name, "") or "")) for name in ("PatientBirthDate", "StudyDate")
        )
        if born < seen:
            return (seen - born).days // 365.25
    return None
