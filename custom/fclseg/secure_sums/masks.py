"""Vectors of integers modulo a power of two, and the masks that are added to them.

A vector has two parts: ``narrow`` numbers of a few bits (a network's weights) and ``wide`` ones of 64 bits (counts and
BatchNorm statistics). A mask is ChaCha20's key stream, so every masked number is uniformly distributed.
"""

from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fclseg.secure_sums.occasion import SumError

MOST_NARROW = 32
CHUNK = 1 << 18


@dataclass(frozen=True)
class Shape:
    """What all parties know about a vector: how many numbers of each kind, and the bits of a narrow one."""

    narrow: int
    wide: int
    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MOST_NARROW or self.narrow < 0 or self.wide < 0:
            raise SumError(f"numbers of {self.bits} bits cannot be summed: choose fewer bits or sites")

    @property
    def kind(self) -> type:
        """The smallest type that holds a narrow number."""
        return np.uint16 if self.bits <= 16 else np.uint32

    @property
    def limit(self) -> int:
        return (1 << self.bits) - 1

    @property
    def packed(self) -> int:
        """Bytes of the narrow numbers on the wire."""
        return self.bits * (-(-self.narrow // 8))


@dataclass
class Vector:
    """Integers modulo 2^bits and 2^64. numpy wraps around by itself."""

    shape: Shape
    narrow: np.ndarray
    wide: np.ndarray

    @classmethod
    def zeros(cls, shape: Shape) -> "Vector":
        return cls(shape, np.zeros(shape.narrow, shape.kind), np.zeros(shape.wide, np.uint64))

    @classmethod
    def of(cls, shape: Shape, narrow: np.ndarray, wide: np.ndarray) -> "Vector":
        """From signed integers."""
        whole = np.asarray(narrow, np.int64).astype(shape.kind) & shape.kind(shape.limit)
        return cls(shape, whole, np.asarray(wide, np.int64).view(np.uint64).copy())

    def add(self, other: "Vector") -> None:
        if other.shape != self.shape:
            raise SumError("two vectors of different sizes cannot be summed: run the same job everywhere")
        self.narrow += other.narrow
        self.narrow &= self.shape.kind(self.shape.limit)
        self.wide += other.wide

    def add_mask(self, key: bytes, sign: int) -> None:
        """Add (sign 1) or subtract (-1) the mask of a key, piece by piece."""
        stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
        operation = np.add if sign > 0 else np.subtract
        for part in (self.wide, self.narrow):
            for start in range(0, part.size, CHUNK):
                piece = part[start : start + CHUNK]
                mask = np.frombuffer(stream.update(bytes(piece.nbytes)), piece.dtype.newbyteorder("<"))
                operation(piece, mask, out=piece, casting="unsafe")
        self.narrow &= self.shape.kind(self.shape.limit)

    def signed(self) -> tuple[np.ndarray, np.ndarray]:
        """Narrow and wide numbers as signed integers, after all masks have been removed."""
        half = 1 << (self.shape.bits - 1)
        narrow = self.narrow.astype(np.int64)
        narrow[narrow >= half] -= 1 << self.shape.bits
        return narrow, self.wide.view(np.int64)

    def pack(self) -> dict[str, np.ndarray]:
        """For the wire: ``bits`` bits per narrow number, one plane of bits after the other."""
        planes = [np.packbits((self.narrow >> self.shape.kind(bit)).astype(np.uint8) & 1) for bit in range(self._bits)]
        return {"narrow": np.concatenate(planes), "wide": self.wide}

    @property
    def _bits(self) -> int:
        return self.shape.bits

    @classmethod
    def unpack(cls, shape: Shape, parts: object) -> "Vector":
        """Raises for anything that ``pack`` cannot have made for this shape."""
        if not isinstance(parts, dict) or set(parts) != {"narrow", "wide"}:
            raise SumError("a masked update has unknown parts: run the same job everywhere")
        for name, kind, size in (("narrow", np.uint8, shape.packed), ("wide", np.uint64, shape.wide)):
            part = parts[name]
            if not isinstance(part, np.ndarray) or part.dtype != kind or part.shape != (size,):
                raise SumError(f"a masked update has {name} numbers of the wrong size: run the same job everywhere")
        narrow: np.ndarray = np.zeros(shape.narrow, shape.kind)
        plane = shape.packed // shape.bits
        for bit in range(shape.bits):
            ones = np.unpackbits(parts["narrow"][bit * plane : (bit + 1) * plane], count=shape.narrow)
            narrow |= ones.astype(shape.kind) << shape.kind(bit)
        return cls(shape, narrow, np.array(parts["wide"]))
