"""One step size for all numbers, as fine as a given number of bits per number allows: the coder of ``tiny``.

Most numbers of an update are near 0 and few are large. With one step size and entropy coding, the bits are spent on the
large ones. At 1.4 bits per number the squared error of a real update is 0.11 of its square (docs/communication.md).
"""

from dataclasses import dataclass

import numpy as np

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.entropy import expand, shrink
from fclseg.federation.codecs.numbers import (
    Numbers,
    Parts,
    chunks,
    mean_square,
    pack,
    packed_size,
    read_scales,
    unpack,
)

EDGES = (1, 2, 3, 4, 6, 9, 15)
"""Start of the levels on either side of 0, in steps. Outer levels are wider, so that seven of them reach far. Two codes
fit into a byte, and zstandard sees pairs."""
LEVELS = len(EDGES)
FEWEST, WIDTH = 0.01, 4
"""Bits per number: the minimum, for a run of zeros, and the size of a code before entropy coding."""
ROUND_UP = 0.4
"""|x| / step is rounded up only from a fraction of 1 - 0.4, because zeros are cheap."""
FINEST, COARSEST, TRIALS = 0.02, 64.0, 12
"""The step size is searched between these multiples of the root mean square, by bisection."""
COARSER = 1.25
OVERHEAD = 64
"""Bytes of an empty zstandard frame."""

_LEVEL = np.searchsorted(EDGES, np.arange(EDGES[-1] + 1), side="right").astype(np.uint8)


@dataclass(frozen=True)
class Steps:
    """``bits``: the maximum average number of bits per number after entropy coding."""

    bits: float = 1.4

    def __post_init__(self) -> None:
        if not FEWEST <= self.bits <= WIDTH:
            raise FCLSegError(f"{self.bits} bits per number are not possible: give {FEWEST} to {WIDTH}")

    def limits(self, numbers: Numbers) -> dict[str, int]:
        return {"levels": 4 * LEVELS, "codes": int(numbers.count * self.bits / 8) + OVERHEAD}

    def encode(self, values: np.ndarray, numbers: Numbers) -> Parts:
        unit = float(np.sqrt(mean_square(values)))
        if unit * FINEST < np.finfo(np.float32).tiny:  # nothing but zeros
            return {"levels": bytes(4 * LEVELS), "codes": shrink(bytes(packed_size(values.size, WIDTH)))}
        low, high, budget = FINEST, COARSEST, self.limits(numbers)["codes"]
        for _ in range(TRIALS):
            step = (low * high) ** 0.5
            fits = len(shrink(pack(_quantise(values, step * unit), WIDTH))) <= budget
            low, high = (low, step) if fits else (step, high)
        codes = _quantise(values, high * unit)
        levels, captured = _level_means(values, codes)
        while high < COARSEST:  # if a fine step leaves much beyond the last level, a coarser one loses less
            high *= COARSER
            coarser = _quantise(values, high * unit)
            means, more = _level_means(values, coarser)
            if more <= captured:
                break
            codes, levels, captured = coarser, means, more
        return {"levels": levels.tobytes(), "codes": shrink(pack(codes, WIDTH))}

    def decode(self, parts: Parts, numbers: Numbers) -> np.ndarray:
        positive = np.concatenate([np.zeros(1, np.float32), read_scales(parts, "levels", LEVELS)])
        packed = packed_size(numbers.count, WIDTH)
        data = expand(parts["codes"], packed)
        if len(data) != packed:
            raise FCLSegError(f"an encoded message has {len(data)} bytes of codes instead of {packed}: it is not used")
        codes = unpack(np.frombuffer(data, np.uint8), WIDTH, numbers.count)
        return np.concatenate([positive, -positive])[codes]


def _quantise(values: np.ndarray, step: float) -> np.ndarray:
    """The level in the low three bits, the sign in the fourth."""
    codes = np.empty(values.size, np.uint8)
    for part in chunks(values.size):
        steps = np.abs(values[part]) / np.float32(step) + np.float32(ROUND_UP)
        level = _LEVEL[np.minimum(steps, EDGES[-1]).astype(np.uint8)]
        codes[part] = level | ((values[part] < 0) & (level > 0)).view(np.uint8) << 3
    return codes


def _level_means(values: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, float]:
    """The mean absolute value of each level, which is the least-squares choice, and the energy that it captures."""
    sums, counts = np.zeros(LEVELS + 1), np.zeros(LEVELS + 1)
    for part in chunks(values.size):
        level = codes[part] & LEVELS
        sums += np.bincount(level, weights=np.abs(values[part]), minlength=LEVELS + 1)
        counts += np.bincount(level, minlength=LEVELS + 1)
    means = (sums / np.maximum(counts, 1))[1:]
    return means.astype(np.float32), float((means**2 * counts[1:]).sum())
