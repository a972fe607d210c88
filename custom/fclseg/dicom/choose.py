"""Recognises the short-axis cine among the series of an exam."""

import re
from collections.abc import Sequence

import numpy as np

from fclseg.dicom.repeats import later
from fclseg.dicom.series import Cine, series_name

FEWEST_SLICES = 4
"""A short-axis stack of a heart has at least this many slices."""
AXIS_DEGREES = 15.0
"""The long axis of the heart is oblique. A stack whose normal is this close to an axis of the body is axial, coronal or
sagittal."""
SHORT = re.compile(r"\b(sax|shax|sa|short|kurz\w*|ka)\b|short.?axis", re.IGNORECASE)
OTHER = re.compile(
    r"\b(lax|long|[2345] ?ch\w*|axial|tra\w*|cor\w*|sag\w*|rvot|lvot|aort\w*|flow|tag\w*)\b", re.IGNORECASE
)


def choose_cine(arranged: Sequence[Cine]) -> tuple[Cine | None, list[str]]:
    """The short-axis cine and a sentence for each other series; None if no series has several slices and phases.

    Exams also have localisers, long-axis views and maps, and a stack may be repeated. Of two short-axis stacks the one
    with more slices is taken, and of equal ones the later.
    """
    cines = [one for one in arranged if len(one.files) >= FEWEST_SLICES and one.phases > 1]
    if not cines:
        return None, []
    best = max(cines, key=lambda one: (is_oblique(one), _words(one), len(one.files), one.phases, later(one.first)))
    return best, [_describe(one, best) for one in arranged if one is not best]


def is_oblique(cine: Cine) -> bool:
    return bool(np.abs(cine.normal).max() < np.cos(np.radians(AXIS_DEGREES)))


def is_short_axis(cine: Cine) -> bool:
    """Whether a series can be a short-axis cine at all."""
    return len(cine.files) >= FEWEST_SLICES and cine.phases > 1 and is_oblique(cine)


def _words(cine: Cine) -> int:
    name = str(getattr(cine.first, "SeriesDescription", None) or "").replace("_", " ")
    return int(bool(SHORT.search(name))) - int(bool(OTHER.search(name)))


def _describe(cine: Cine, best: Cine) -> str:
    what = f"{cine.files[0][0].path.parent}: series {series_name(cine.first)}"
    size = f"({len(cine.files)} slices, {cine.phases} phases)"
    if not is_short_axis(cine):
        return f"{what} {size} is not a short-axis cine"
    return f"{what} {size} may be a short-axis cine, too; series {series_name(best.first)} is used"
