"""The interface of a coder for numbers: float32 in, a few named byte strings out, and back."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fclseg.errors import FCLSegError

Parts = dict[str, bytes]


@dataclass(frozen=True)
class Numbers:
    """What both ends know about a vector before any data: its length, and the length of each channel."""

    count: int
    channels: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


class Coder(Protocol):
    """Encodes the numbers of a network. ``Numbers`` alone bounds every size, so that it can be stated in advance."""

    def limits(self, numbers: Numbers) -> dict[str, int]:
        """The parts that ``encode`` returns, in order, and the maximum size of each in bytes."""
        ...

    def encode(self, values: np.ndarray, numbers: Numbers) -> Parts:
        """Returns the parts. ``values`` may be overwritten, because a network is large."""
        ...

    def decode(self, parts: Parts, numbers: Numbers) -> np.ndarray:
        """The values as the receiver sees them. Raises for parts that ``encode`` cannot have made."""
        ...


def read(parts: Parts, name: str, kind: type, count: int) -> np.ndarray:
    """One part as an array. Raises unless it has exactly the length that the layout requires."""
    data, wanted = parts[name], count * np.dtype(kind).itemsize
    if len(data) != wanted:
        raise FCLSegError(f"an encoded message has {len(data)} bytes of {name} instead of {wanted}: it is not used")
    return np.frombuffer(data, dtype=kind)


def read_scales(parts: Parts, name: str, count: int) -> np.ndarray:
    """Scales: finite numbers of at least 0."""
    scales = read(parts, name, np.float32, count)
    if not (np.isfinite(scales).all() and (scales >= 0).all()):
        raise FCLSegError(f"an encoded message has invalid scales in {name}: it is damaged and not used")
    return scales


def chunks(count: int, length: int = 1 << 18) -> Iterator[slice]:
    """Pieces of a vector, so that temporary arrays stay small compared with a network."""
    return (slice(start, min(start + length, count)) for start in range(0, count, length))


def mean_square(values: np.ndarray) -> float:
    """Computed in float64; 0 if there are no values."""
    total = sum(float(np.square(values[part], dtype=np.float64).sum()) for part in chunks(values.size))
    return total / max(values.size, 1)


def pack(codes: np.ndarray, bits: int) -> bytes:
    """Pack codes of 1, 2, 4 or 8 bits into bytes. The first code has the lowest bits."""
    per = 8 // bits
    if per == 1:
        return codes.tobytes()
    padded = np.zeros(-(-codes.size // per) * per, np.uint8)
    padded[: codes.size] = codes
    packed = padded[0::per].copy()
    for place in range(1, per):
        packed |= padded[place::per] << (bits * place)
    return packed.tobytes()


def packed_size(count: int, bits: int) -> int:
    return -(-count * bits // 8)


def unpack(data: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first ``count`` codes of ``pack``."""
    per = 8 // bits
    codes = np.empty(data.size * per, np.uint8)
    for place in range(per):
        codes[place::per] = (data >> (bits * place)) & (2**bits - 1)
    return codes[:count]
