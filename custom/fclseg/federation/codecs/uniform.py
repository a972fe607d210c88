"""Equally spaced levels of 8, 4 or 2 bits, with one scale per channel."""

from dataclasses import dataclass

import numpy as np

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.numbers import Numbers, Parts, pack, packed_size, read, read_scales, unpack

LOADING = {2: 1.224, 4: np.inf, 8: np.inf}
"""The outermost level in multiples of the root mean square, if that is less than the largest value. With three levels
the largest value is a bad choice: 1.224 is the least-squares choice for a normal distribution."""


@dataclass(frozen=True)
class Uniform:
    """x ~ scale q with whole q in [-Q, Q], Q = 2^(bits-1) - 1. The numbers of a channel share a scale."""

    bits: int = 8

    def __post_init__(self) -> None:
        if self.bits not in LOADING:
            raise FCLSegError(f"{self.bits} bits are not possible: give 2, 4 or 8 bits")

    def limits(self, numbers: Numbers) -> dict[str, int]:
        return {"scales": 4 * self._lengths(numbers).size, "codes": packed_size(numbers.count, self.bits)}

    def encode(self, values: np.ndarray, numbers: Numbers) -> Parts:
        lengths, levels = self._lengths(numbers), 2 ** (self.bits - 1) - 1
        if not values.size:
            return {"scales": b"", "codes": b""}
        starts = np.cumsum(lengths) - lengths
        outer = np.maximum.reduceat(np.abs(values), starts)
        if np.isfinite(LOADING[self.bits]):
            squares = np.add.reduceat(np.square(values), starts)
            outer = np.minimum(outer, LOADING[self.bits] * np.sqrt(squares / lengths))
        scales = (outer / levels).astype(np.float32)
        divisors = np.repeat(np.where(scales > 0, scales, 1), lengths)
        np.rint(np.divide(values, divisors, out=divisors), out=divisors)
        np.clip(divisors, -levels, levels, out=divisors)
        divisors += levels
        return {"scales": scales.tobytes(), "codes": pack(divisors.astype(np.uint8), self.bits)}

    def decode(self, parts: Parts, numbers: Numbers) -> np.ndarray:
        lengths, levels = self._lengths(numbers), 2 ** (self.bits - 1) - 1
        scales = read_scales(parts, "scales", lengths.size)
        data = read(parts, "codes", np.uint8, packed_size(numbers.count, self.bits))
        codes = unpack(data, self.bits, numbers.count)
        if codes.size and codes.max() > 2 * levels:
            raise FCLSegError("an encoded message has codes outside its levels: it is damaged and not used")
        values = codes.astype(np.float32)
        values -= levels
        values *= np.repeat(scales, lengths)
        return values

    def _lengths(self, numbers: Numbers) -> np.ndarray:
        if int(numbers.channels.sum()) != numbers.count:
            raise FCLSegError("single numbers have no channels that share a scale: choose a coder without scales")
        return numbers.channels
