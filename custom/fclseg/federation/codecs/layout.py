"""Which tensors of a network are encoded, and how they become one vector and a network again."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fclseg.federation.codecs.numbers import Numbers

Arrays = dict[str, np.ndarray]

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Suffixes of BatchNorm's buffers. They are never encoded: they are few numbers of a different magnitude."""
SMALLEST = 1024
"""Smaller tensors are not encoded either: together they are one number in 250."""


@dataclass(frozen=True)
class Layout:
    """Names, shapes and types of a network's tensors, sorted by name because files and messages have other orders."""

    tensors: tuple[tuple[str, tuple[int, ...], str], ...]

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "Layout":
        return cls(tuple((name, arrays[name].shape, arrays[name].dtype.str) for name in sorted(arrays)))

    @cached_property
    def coded(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(name, shape) for name, shape, kind in self.tensors if _is_coded(name, shape, kind)]

    @cached_property
    def small(self) -> list[tuple[str, tuple[int, ...], np.dtype]]:
        return [(name, shape, np.dtype(kind)) for name, shape, kind in self.tensors if not _is_coded(name, shape, kind)]

    @cached_property
    def numbers(self) -> Numbers:
        """The vector of all encoded tensors. A channel is one entry of a tensor's first dimension."""
        rows = [np.full(shape[0], int(np.prod(shape[1:])), np.int64) for _, shape in self.coded]
        channels = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        return Numbers(int(channels.sum()), channels)

    def flatten(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """All encoded tensors as a new vector."""
        flat = np.empty(self.numbers.count, np.float32)
        for name, _, part in self._places():
            flat[part] = arrays[name].reshape(-1)
        return flat

    def combine(self, flat: np.ndarray, arrays: Mapping[str, np.ndarray], operation: np.ufunc) -> None:
        """flat <- operation(flat, arrays) in place, tensor by tensor; on raw bits if the vector has integers."""
        for name, _, part in self._places():
            if name in arrays:
                other = np.ascontiguousarray(arrays[name]).reshape(-1).view(flat.dtype)
                operation(flat[part], other, out=flat[part])

    def unflatten(self, flat: np.ndarray) -> Arrays:
        """The encoded tensors as views of a vector."""
        return {name: flat[part].reshape(shape) for name, shape, part in self._places()}

    def _places(self) -> list[tuple[str, tuple[int, ...], slice]]:
        places, start = [], 0
        for name, shape in self.coded:
            end = start + int(np.prod(shape))
            places.append((name, shape, slice(start, end)))
            start = end
        return places


def _is_coded(name: str, shape: tuple[int, ...], kind: str) -> bool:
    return (
        np.dtype(kind) == np.float32
        and len(shape) > 0
        and int(np.prod(shape)) >= SMALLEST
        and name.rsplit(".", 1)[-1] not in STATISTICS
    )
