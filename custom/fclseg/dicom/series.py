"""A short-axis cine series as a grid of DICOM files: slice positions by phases."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fclseg.dicom.frames import Source
from fclseg.dicom.phases import INSTANCE, TRIGGER, Mix, clock, mixes, number
from fclseg.dicom.repeats import breath_holds, later
from fclseg.errors import DataError

SAME_PLACE_MM = 0.1
SAME_DIRECTION = 1e-3
EVEN = 0.05
"""Distances between slices may differ by this fraction without a remark."""
MISSING = 1.6
"""A distance of this many usual ones means that a slice is missing."""
ENOUGH_PHASES = 0.75
"""A slice with at least this fraction of the phases is interpolated."""

Item = tuple[Source, Any]


@dataclass(frozen=True)
class Cine:
    """Files by slice and phase, ordered by position along the normal and by time."""

    files: tuple[tuple[Source, ...], ...]  # [slice][phase]; a slice can have a few phases more or less
    headers: tuple[tuple[Any, ...], ...]  # pydicom datasets without pixels
    normal: tuple[float, float, float]
    phases: int
    remarks: tuple[str, ...] = ()  # what was not as expected, and what was done about it

    @property
    def first(self) -> Any:
        return self.headers[0][0]

    @property
    def complete(self) -> tuple[Any, ...]:
        """The headers of the first slice with the usual number of phases."""
        return next(one for one in self.headers if len(one) == self.phases)

    def mixes(self, position: int) -> list[Mix]:
        """How the images of a slice make up the phases of the cine."""
        return mixes(self.headers[position], self.complete)

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Column, row and mean slice distance in mm."""
        row, column = (float(value) for value in self.first.PixelSpacing)
        steps = np.diff([along(slices[0], self.normal) for slices in self.headers])
        thickness = float(getattr(self.first, "SliceThickness", None) or 0)
        return column, row, float(steps.mean()) if len(steps) else thickness

    @property
    def frame_seconds(self) -> float | None:
        if clock(self.complete) != TRIGGER:
            return None
        steps = np.diff([float(header.TriggerTime) for header in self.complete])
        return float(steps.mean()) / 1000 if len(steps) and (steps > 0).all() else None


def series_name(header: Any) -> str:
    """What a person calls a series: its description and number."""
    words = str(getattr(header, "SeriesDescription", None) or "").strip()
    count = str(getattr(header, "SeriesNumber", None) or "").strip()
    return f"{words or 'without description'} (number {count})" if count else words or "without description"


def arrange(items: Sequence[Item]) -> Cine:
    """The files of one series as a grid. Raises unless the series is a stack of one orientation."""
    first = items[0][1]
    name, where = series_name(first), items[0][0].path.parent
    normal = _normal(first)
    _check_grid(items, name)
    places: list[list[Item]] = []
    for item in sorted(items, key=lambda item: along(item[1], normal)):
        if places and abs(along(item[1], normal) - along(places[-1][0][1], normal)) < SAME_PLACE_MM:
            places[-1].append(item)
        else:
            places.append([item])
    remarks: list[str] = []
    slices = _without_repeats(places, remarks)
    phases = _usual_phases(slices)
    slices = _with_enough_phases(slices, phases, remarks, f"{where}: series {name}")
    _check_distances([along(one[0][1], normal) for one in slices], remarks, f"{where}: series {name}")
    return Cine(
        tuple(tuple(path for path, _ in one) for one in slices),
        tuple(tuple(header for _, header in one) for one in slices),
        (float(normal[0]), float(normal[1]), float(normal[2])),
        phases,
        tuple(f"series {name}: {remark}" for remark in remarks),
    )


def _check_grid(items: Sequence[Item], name: str) -> None:
    first = items[0][1]
    for source, header in items:
        if np.abs(np.subtract(header.ImageOrientationPatient, first.ImageOrientationPatient)).max() > SAME_DIRECTION:
            raise DataError(
                f"{source.path}: has a different orientation than the rest of series {name}; export one stack only"
            )
        if (header.Rows, header.Columns) != (first.Rows, first.Columns) or header.PixelSpacing != first.PixelSpacing:
            raise DataError(
                f"{source.path}: has a different grid than the rest of series {name}; export one stack only"
            )


def _without_repeats(places: list[list[Item]], remarks: list[str]) -> list[list[Item]]:
    """One breath-hold per slice, in the order of time: the latest of the complete ones."""
    held = [breath_holds(place) for place in places]
    usual = Counter(len(one) for holds in held for one in holds).most_common(1)[0][0]
    slices = []
    for place, holds in enumerate(held, start=1):
        whole = [one for one in holds if len(one) >= usual] or [max(holds, key=len)]
        slices.append(_in_time(max(whole, key=lambda one: later(one[0][1]))))
        if len(holds) > 1:
            remarks.append(f"slice {place} was acquired {len(holds)} times; the last complete one is used")
    return slices


def _in_time(items: list[Item]) -> list[Item]:
    name = clock([header for _, header in items])
    return sorted(items, key=lambda item: (number(item[1], name) or 0.0, number(item[1], INSTANCE) or 0.0))


def _usual_phases(slices: Sequence[Sequence[Item]]) -> int:
    """The most common number of phases, and of equally common ones the largest."""
    counts = Counter(len(one) for one in slices)
    return max(counts, key=lambda count: (counts[count], count))


def _with_enough_phases(slices: list[list[Item]], phases: int, remarks: list[str], what: str) -> list[list[Item]]:
    """Leave out slices at the ends with far fewer phases. In the middle of the stack that is an error."""
    good = [len(one) >= ENOUGH_PHASES * phases for one in slices]
    first, last = good.index(True), len(good) - good[::-1].index(True)
    if not all(good[first:last]):
        number_ = first + good[first:last].index(False) + 1
        raise DataError(
            f"{what} has {phases} phases, but slice {number_} has {len(slices[number_ - 1])}; export all of it"
        )
    for number_, one in enumerate(slices, start=1):
        if not good[number_ - 1]:
            remarks.append(f"slice {number_} has only {len(one)} of {phases} phases and is left out")
        elif len(one) != phases:
            remarks.append(f"slice {number_} has {len(one)} phases instead of {phases} and is interpolated in time")
    return slices[first:last]


def _check_distances(heights: Sequence[float], remarks: list[str], what: str) -> None:
    steps = np.diff(heights)
    if not len(steps):
        return
    usual = float(np.median(steps))
    if steps.max() > MISSING * usual:
        place = int(steps.argmax()) + 1
        raise DataError(
            f"{what} has {steps.max():.1f} mm between slices {place} and {place + 1} and {usual:.1f} mm elsewhere, so "
            "a slice is missing; export all of it"
        )
    if np.ptp(steps) > EVEN * steps.mean():
        remarks.append(
            f"the slices are {steps.min():.1f} to {steps.max():.1f} mm apart; volumes use the mean of "
            f"{steps.mean():.1f} mm"
        )


def _normal(header: Any) -> np.ndarray:
    direction = np.array([float(value) for value in header.ImageOrientationPatient])
    return np.cross(direction[:3], direction[3:])


def along(header: Any, normal: Sequence[float] | np.ndarray) -> float:
    return float(np.dot([float(value) for value in header.ImagePositionPatient], normal))
