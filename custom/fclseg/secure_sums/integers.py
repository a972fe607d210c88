"""A site's update as integers that can be summed under masks, and the mean that the sum gives.

All sites must use the same step, so it cannot come from one site's update. It comes from the sums of the round before:
for each channel, the mean over the sites of the largest change. In the first round of a component there is none, and
its numbers are sent with 64 bits. What rounding or clipping removes goes into the site's next update (error feedback).

The weight n_c is part of the integers: q_c = round(n_c / n_ref x / step), so that the sum of q_c is the weighted sum.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.layout import Arrays, Layout
from fclseg.federation.codecs.numbers import chunks
from fclseg.federation.robust import HARMLESS, update_norm
from fclseg.federation.states import VARIANCE
from fclseg.secure_sums.masks import Shape, Vector
from fclseg.secure_sums.occasion import digest

FEWEST_BITS, MOST_BITS = 4, 16
FINE = 2.0**28
"""Steps per unit of a wide number. Its 64 bits then reach to 10^10."""
FINER = 2.0**36
"""The same for the largest change of a channel, which becomes small at the end of a training."""
HEADROOM = 1.25
"""The range of a channel, relative to the mean of the sites' largest changes in the last round."""
SMALLEST_RANGE = 2.0**-60
REPORTED = ("loss", "feature_std", "steps", "seconds")
"""What the sites report on their round, besides the number of samples. The server learns the sums."""


@dataclass(frozen=True)
class Scales:
    """What all sites must know before they round: public, and the same for all of them."""

    bits: int = 8
    weight: float = 1.0  # n_ref: the mean number of samples of a site in the last round; 1: unknown
    ranges: Mapping[str, np.ndarray] = field(default_factory=dict)  # component -> largest |value| of each channel
    norms: Mapping[str, float] = field(default_factory=dict)  # component -> mean norm of an update

    def __post_init__(self) -> None:
        if not FEWEST_BITS <= self.bits <= MOST_BITS:
            raise FCLSegError(f"'sum_bits' cannot be {self.bits}: give {FEWEST_BITS} to {MOST_BITS}")

    def to_dict(self) -> dict[str, Any]:
        ranges = {name: [float(value) for value in values] for name, values in self.ranges.items()}
        return {"bits": self.bits, "weight": self.weight, "ranges": ranges, "norms": dict(self.norms)}

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Scales":
        ranges = {name: np.asarray(found, np.float64) for name, found in values["ranges"].items()}
        norms = {str(name): float(norm) for name, norm in values["norms"].items()}
        scales = cls(int(values["bits"]), float(values["weight"]), ranges, norms)
        numbers = [scales.weight, *norms.values()]
        if not (all(map(math.isfinite, numbers)) and min(numbers) >= 0 and scales.weight > 0):
            raise FCLSegError("the scales of a sum are damaged: run the same version everywhere")
        if not all(np.isfinite(found).all() and (found >= 0).all() for found in ranges.values()):
            raise FCLSegError("the ranges of a sum are damaged: run the same version everywhere")
        return scales

    @cached_property
    def name(self) -> str:
        """Goes into every mask: sites with other scales cannot be in the same sum."""
        return digest(self.to_dict())


@dataclass(frozen=True)
class Update:
    """What a site contributes: networks, what they are compared with, and the report on the round."""

    networks: Mapping[str, Arrays]
    base: Mapping[str, Arrays]
    samples: int
    report: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Mean:
    """What the server learns from a sum."""

    networks: dict[str, Arrays]
    samples: int  # of all sites
    report: dict[str, float]  # mean over samples of the loss and feature_std, sums of the others
    scales: Scales  # of the next round


class SumPlan:
    """The place of every number, from what everybody knows: the networks' tensors, the scales, the number of sites."""

    def __init__(self, like: Mapping[str, Arrays], scales: Scales, sites: int, keeps: frozenset[str] = frozenset()):
        """``keeps``: the components with error feedback."""
        self.scales, self.sites, self.keeps = scales, sites, keeps
        self._layouts = {name: Layout.of(like[name]) for name in sorted(like)}
        self._coarse = [
            name
            for name, layout in self._layouts.items()
            if name in scales.ranges and len(scales.ranges[name]) == layout.numbers.channels.size
        ]
        self.levels = 2 ** (scales.bits - 1) - 1

    @cached_property
    def shape(self) -> Shape:
        narrow = sum(self._layouts[name].numbers.count for name in self._coarse)
        wide = 1 + len(REPORTED)
        for name, layout in self._layouts.items():
            wide += 1 + layout.numbers.channels.size + sum(int(np.prod(shape)) for _, shape, _ in layout.small)
            wide += 0 if name in self._coarse else layout.numbers.count
        return Shape(narrow, wide, self.scales.bits + math.ceil(math.log2(max(self.sites, 2))))

    def encode(self, update: Update, lost: Mapping[str, Arrays]) -> tuple[Vector, dict[str, Arrays]]:
        """The integers, and what rounding removed from each component with feedback."""
        samples = update.samples
        weight, memory = samples / self.scales.weight, {}
        narrow, wide = [], [np.array([samples]), self._fixed([update.report[name] * samples for name in REPORTED])]
        for name, layout in self._layouts.items():
            base = update.base[name]
            sent = self._clipped(name, update.networks[name], base)
            wide.append(self._fixed([update_norm(sent, base)]))
            changes = layout.flatten(sent).astype(np.float64)
            layout.combine(changes, {key: base[key].astype(np.float64) for key, _ in layout.coded}, np.subtract)
            if name in self.keeps and name in lost:
                changes += lost[name]["lost"]
            wide.append(np.rint(np.clip(weight * _largest(changes, layout), 0, self._most / FINER) * FINER))
            small = [(sent[key].astype(np.float64) - base[key]).reshape(-1) for key, *_ in layout.small]
            wide.append(self._fixed(weight * np.concatenate(small)) if small else np.zeros(0))
            if name not in self._coarse:
                wide.append(self._fixed(weight * changes))
                continue
            codes, rest = self._rounded(name, changes, weight)
            narrow.append(codes)
            if name in self.keeps and rest.size:
                memory[name] = {"lost": rest}
        joined = np.concatenate(narrow) if narrow else np.zeros(0, np.int64)
        whole = np.concatenate([part.astype(np.int64) for part in wide])
        return Vector.of(self.shape, joined, whole), memory

    def decode(self, total: Vector, base: Mapping[str, Arrays], count: int) -> Mean:
        """The weighted mean of ``count`` sites."""
        narrow, wide = total.signed()
        samples, place, used = int(wide[0]), 1 + len(REPORTED), 0
        if samples <= 0:
            raise FCLSegError("the sum of the sites' samples is not positive: the round is not used")
        reported = dict(zip(REPORTED, wide[1:place] / FINE / samples, strict=True))
        share, mean_samples = self.scales.weight / samples, max(1.0, samples / count)
        networks, ranges, norms = {}, {}, {}

        def take(size: int) -> np.ndarray:
            nonlocal place
            place += size
            return wide[place - size : place].astype(np.float64)

        for name, layout in self._layouts.items():
            # A lying site can make them negative, and no site would answer a round with such scales.
            norms[name] = max(0.0, float(take(1)[0] / FINE / count))
            largest = np.maximum(take(layout.numbers.channels.size) / FINER / count, 0.0)
            ranges[name] = largest * HEADROOM * self.scales.weight / mean_samples
            small = take(sum(int(np.prod(shape)) for _, shape, _ in layout.small)) / FINE * share
            if name in self._coarse:
                end = used + layout.numbers.count
                changes = narrow[used:end] * (self._steps(name, layout) * share)
                used = end
            else:
                changes = take(layout.numbers.count) / FINE * share
            networks[name] = _moved(layout, base[name], changes, small)
        return Mean(networks, samples, reported, self._next(mean_samples, ranges, norms))

    def _next(self, weight: float, ranges: dict[str, np.ndarray], norms: dict[str, float]) -> Scales:
        """Components that were not sent keep their scales."""
        kept = {name: found * self.scales.weight / weight for name, found in self.scales.ranges.items()}
        return Scales(self.scales.bits, weight, kept | ranges, {**self.scales.norms, **norms})

    def _rounded(self, name: str, changes: np.ndarray, weight: float) -> tuple[np.ndarray, np.ndarray]:
        steps = self._steps(name, self._layouts[name])
        codes = np.empty(changes.size, np.int32)
        for part in chunks(changes.size):
            codes[part] = np.clip(np.rint(changes[part] * weight / steps[part]), -self.levels, self.levels)
        return codes, (changes - codes * steps / weight).astype(np.float32)

    def _steps(self, name: str, layout: Layout) -> np.ndarray:
        ranges = np.maximum(self.scales.ranges[name], SMALLEST_RANGE)
        return np.repeat(ranges / self.levels, layout.numbers.channels)

    @property
    def _most(self) -> float:
        """What one site may add to a wide number, so that the sum of all fits."""
        return 2.0**62 / self.sites

    def _fixed(self, values: Any) -> np.ndarray:
        return np.clip(np.rint(np.asarray(values, np.float64) * FINE), -self._most, self._most)

    def _clipped(self, name: str, sent: Arrays, base: Arrays) -> Arrays:
        """The server cannot compare single norms, so each site compares its own with the last round's mean."""
        if not (usual := self.scales.norms.get(name, 0.0)):
            return sent
        size = update_norm(base, {key: np.zeros_like(array) for key, array in base.items()})
        norm, allowed = update_norm(sent, base), max(CLIP_FACTOR * usual, HARMLESS[0] * size)
        return _shortened(sent, base, allowed / norm) if norm > allowed else sent


CLIP_FACTOR = 10.0
"""An update is shortened to this many times the mean norm of the last round."""


def _shortened(sent: Arrays, base: Arrays, scale: float) -> Arrays:
    """The network with its change multiplied by ``scale``. Counters are not changed."""
    return {
        key: (base[key] + scale * (array.astype(np.float64) - base[key])).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for key, array in sent.items()
    }


def _largest(changes: np.ndarray, layout: Layout) -> np.ndarray:
    lengths = layout.numbers.channels
    return np.maximum.reduceat(np.abs(changes), np.cumsum(lengths) - lengths) if lengths.size else np.zeros(0)


def _moved(layout: Layout, base: Arrays, changes: np.ndarray, small: np.ndarray) -> Arrays:
    """The base plus the mean change, rounded once to the type of each tensor."""
    found, start = dict(layout.unflatten(changes)), 0
    for key, shape, _ in layout.small:
        end = start + int(np.prod(shape))
        found[key], start = small[start:end].reshape(shape), end
    result = {}
    for key, _, kind in layout.tensors:
        value = base[key].astype(np.float64) + found[key]
        if key.endswith(VARIANCE):
            value = np.maximum(value, 0.0)
        result[key] = np.asarray(np.rint(value) if np.dtype(kind).kind in "iu" else value).astype(kind)
    return result
