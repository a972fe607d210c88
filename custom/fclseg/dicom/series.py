"""A short-axis cine series as a grid of DICOM files: slice positions by phases."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fclseg.dicom.frames import Source
from fclseg.errors import DataError

SAME_PLACE_MM = 0.1
SAME_DIRECTION = 1e-3
EVEN = 0.05
"""Distances between slices may differ by this fraction."""

TRIGGER, INSTANCE = "TriggerTime", "InstanceNumber"
CLOCKS = (TRIGGER, "TemporalPositionIdentifier", INSTANCE)


@dataclass(frozen=True)
class Cine:
    """Files by slice and phase, ordered by position along the normal and by time."""

    files: tuple[tuple[Source, ...], ...]  # [slice][phase]
    headers: tuple[tuple[Any, ...], ...]  # pydicom datasets without pixels
    normal: tuple[float, float, float]

    @property
    def first(self) -> Any:
        return self.headers[0][0]

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Column, row and slice distance in mm."""
        row, column = (float(value) for value in self.first.PixelSpacing)
        steps = np.diff([_along(slices[0], self.normal) for slices in self.headers])
        thickness = float(getattr(self.first, "SliceThickness", None) or 0)
        return column, row, float(steps.mean()) if len(steps) else thickness

    @property
    def frame_seconds(self) -> float | None:
        if _clock(self.headers[0]) != TRIGGER:
            return None
        steps = np.diff([float(header.TriggerTime) for header in self.headers[0]])
        return float(steps.mean()) / 1000 if len(steps) and (steps > 0).all() else None


def arrange(name: str, items: Sequence[tuple[Source, Any]]) -> Cine:
    """The files of one series as a grid. Raises unless the series is a complete stack of one orientation."""
    first = items[0][1]
    normal = _normal(first)
    for source, header in items:
        if np.abs(np.subtract(header.ImageOrientationPatient, first.ImageOrientationPatient)).max() > SAME_DIRECTION:
            raise DataError(
                f"{source.path}: has a different orientation than the rest of series {name}; export one stack only"
            )
        if (header.Rows, header.Columns) != (first.Rows, first.Columns) or header.PixelSpacing != first.PixelSpacing:
            raise DataError(
                f"{source.path}: has a different grid than the rest of series {name}; export one stack only"
            )
    slices: list[list[tuple[Source, Any]]] = []
    for item in sorted(items, key=lambda item: _along(item[1], normal)):
        if slices and abs(_along(item[1], normal) - _along(slices[-1][0][1], normal)) < SAME_PLACE_MM:
            slices[-1].append(item)
        else:
            slices.append([item])
    counts = sorted({len(one) for one in slices})
    where = f"{items[0][0].path.parent}: "
    if len(counts) > 1:
        raise DataError(f"{where}series {name} has slices with {counts[0]} and {counts[-1]} phases; export all of it")
    steps = np.diff([_along(one[0][1], normal) for one in slices])
    if len(steps) and np.ptp(steps) > EVEN * steps.mean():
        raise DataError(
            f"{where}the slices of series {name} are {steps.min():.1f} to {steps.max():.1f} mm "
            "apart, so one is missing; export all of it"
        )
    clock = _clock([header for _, header in items])
    ordered = [
        sorted(one, key=lambda item: (_number(item[1], clock) or 0.0, _number(item[1], INSTANCE) or 0.0))
        for one in slices
    ]
    return Cine(
        tuple(tuple(path for path, _ in one) for one in ordered),
        tuple(tuple(header for _, header in one) for one in ordered),
        (float(normal[0]), float(normal[1]), float(normal[2])),
    )


def _clock(headers: Sequence[Any]) -> str:
    """The first tag that orders phases and that all files have: the trigger time in ms, or a number that counts."""
    return next((name for name in CLOCKS if all(_number(one, name) is not None for one in headers)), INSTANCE)


def _number(header: Any, name: str) -> float | None:
    value = getattr(header, name, None)
    return None if value is None or str(value) == "" else float(value)


def _normal(header: Any) -> np.ndarray:
    direction = np.array([float(value) for value in header.ImageOrientationPatient])
    return np.cross(direction[:3], direction[3:])


def _along(header: Any, normal: Sequence[float] | np.ndarray) -> float:
    return float(np.dot([float(value) for value in header.ImagePositionPatient], normal))
