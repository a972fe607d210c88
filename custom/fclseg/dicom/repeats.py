"""Repeated breath-holds: a slice that was acquired more than once, because the patient moved or breathed."""

from collections.abc import Sequence
from typing import Any

from fclseg.dicom.frames import Source
from fclseg.dicom.phases import INSTANCE, clock, number

Item = tuple[Source, Any]
STARTS_EARLY = 0.25
MOST_REPEATS = 5
"""A repetition begins in the first part of the cycle. More of them are no repetitions, but numbers without order."""
TIMES = ("AcquisitionTime", "SeriesTime", "ContentTime")
NUMBERS = ("SeriesNumber", "AcquisitionNumber", INSTANCE)


def later(header: Any) -> tuple[float, ...]:
    """A key that is larger for what was acquired later."""
    return tuple(_value(header, name) for name in (*TIMES, *NUMBERS))


def breath_holds(items: Sequence[Item]) -> list[list[Item]]:
    """The images of one position by acquisition. Two series are two, and so is a series whose clock goes back."""
    series: dict[str, list[Item]] = {}
    for item in sorted(items, key=lambda item: _order(item[1])):
        series.setdefault(str(item[1].SeriesInstanceUID), []).append(item)
    return [part for one in series.values() for part in _cycles(one)]


def _cycles(items: list[Item]) -> list[list[Item]]:
    name = clock([header for _, header in items])
    parts: list[list[Item]] = []
    for item in items:
        if parts and (number(item[1], name) or 0.0) > (number(parts[-1][-1][1], name) or 0.0):
            parts[-1].append(item)
        else:
            parts.append([item])
    return parts if _are_cycles(parts, name) else [items]


def _are_cycles(parts: Sequence[Sequence[Item]], name: str) -> bool:
    times = [[number(header, name) or 0.0 for _, header in part] for part in parts]
    low, high = min(map(min, times)), max(map(max, times))
    long = all(len(part) > 1 for part in times) or low == high
    early = all(part[0] <= low + STARTS_EARLY * (high - low) for part in times)
    return long and early and len(parts) <= MOST_REPEATS


def _order(header: Any) -> tuple[float, ...]:
    return tuple(_value(header, name) for name in NUMBERS)


def _value(header: Any, name: str) -> float:
    try:
        return float(getattr(header, name, None) or 0.0)
    except (TypeError, ValueError):
        return 0.0
