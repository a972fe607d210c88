"""1 to 4 bits per number after a random rotation (DRIVE and EDEN: Vargaftik et al. 2021 and 2022).

Blocks are multiplied by random signs and a Hadamard matrix. After that, the numbers of a block are nearly normally
distributed. The optimal levels of the normal distribution therefore fit all blocks, with one scale per block.
"""

from dataclasses import dataclass

import numpy as np

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.numbers import Numbers, Parts, chunks, read, read_scales

CENTROIDS = {
    1: (0.797885,),
    2: (0.452780, 1.510418),
    3: (0.245094, 0.756005, 1.343909, 2.151946),
    4: (0.128395, 0.388048, 0.656759, 0.942340, 1.256231, 1.618046, 2.069017, 2.732590),
}
"""The positive half of the least-squares levels of the normal distribution (Lloyd and Max), by bits."""
LEAST_SQUARES, UNBIASED = "least squares", "unbiased"


@dataclass(frozen=True)
class Rotation:
    """``scale``: least squares (smallest error), or unbiased over the random signs."""

    bits: int = 1
    block: int = 4096
    scale: str = LEAST_SQUARES

    def __post_init__(self) -> None:
        power_of_two = self.block > 0 and self.block & (self.block - 1) == 0
        if self.bits not in CENTROIDS or not power_of_two or self.scale not in (LEAST_SQUARES, UNBIASED):
            raise FCLSegError(
                f"{self.bits} bits in rotated blocks of {self.block} ({self.scale}) are impossible: give 1 to 4 bits, "
                f"a power of two, and '{LEAST_SQUARES}' or '{UNBIASED}'"
            )

    def limits(self, numbers: Numbers) -> dict[str, int]:
        blocks = -(-numbers.count // self.block)
        return {"scales": 4 * blocks, "codes": self.bits * -(-blocks * self.block // 8)}

    def encode(self, values: np.ndarray, numbers: Numbers, seed: int) -> Parts:
        blocks = np.zeros(-(-values.size // self.block) * self.block, np.float32)
        blocks[: values.size] = values
        bits = _random_bits(seed, blocks.size)
        scales, codes = np.zeros(blocks.size // self.block, np.float32), np.zeros(blocks.size, np.uint8)
        for rows in chunks(scales.size, self._rows):
            place = slice(rows.start * self.block, rows.stop * self.block)
            scales[rows], codes[place] = self._quantise(blocks[place] * _signs(bits, place))
        planes = [np.packbits((codes >> bit) & 1, bitorder="little").tobytes() for bit in range(self.bits)]
        return {"scales": scales.tobytes(), "codes": b"".join(planes)}

    def _quantise(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scales and codes of some blocks, after their random sign flips."""
        blocks = values.reshape(-1, self.block)
        hadamard(blocks)
        squares = np.square(blocks, dtype=np.float64).sum(axis=1)
        size = np.sqrt(squares / self.block)
        scaled = (blocks / np.where(size > 0, size, 1)[:, None]).astype(np.float32)
        codes = np.searchsorted(self._thresholds, scaled.reshape(-1)).astype(np.uint8)
        levels = self._levels[codes].reshape(blocks.shape).astype(np.float64)
        along = (blocks * levels).sum(axis=1)
        if self.scale == LEAST_SQUARES:
            return along / np.square(levels).sum(axis=1), codes
        return np.divide(squares, along, out=np.zeros_like(along), where=along > 0), codes

    def decode(self, parts: Parts, numbers: Numbers, seed: int) -> np.ndarray:
        count = -(-numbers.count // self.block) * self.block
        scales = read_scales(parts, "scales", count // self.block)
        planes = read(parts, "codes", np.uint8, self.bits * -(-count // 8)).reshape(self.bits, -1)
        bits, flat = _random_bits(seed, count), np.empty(count, np.float32)
        for rows in chunks(scales.size, self._rows):
            place = slice(rows.start * self.block, rows.stop * self.block)
            blocks = self._levels[_bits_to_codes(planes, place)].reshape(-1, self.block)
            blocks *= scales[rows, None]
            hadamard(blocks)
            flat[place] = blocks.reshape(-1) * _signs(bits, place)
        return flat[: numbers.count]

    @property
    def _rows(self) -> int:
        """Number of blocks processed at a time: whole bytes of the bit planes, and small compared with a network."""
        return max(8, (1 << 17) // self.block)

    @property
    def _levels(self) -> np.ndarray:
        half = CENTROIDS[self.bits]
        return np.array([*(-level for level in reversed(half)), *half], np.float32)

    @property
    def _thresholds(self) -> np.ndarray:
        return (self._levels[1:] + self._levels[:-1]) / 2


def hadamard(blocks: np.ndarray) -> None:
    """Multiply every row by the Hadamard matrix over sqrt(n), in place. Applied twice, it is the identity.

    It uses only sums and differences in a fixed order, so that both ends get the same bits.
    """
    rows, size = blocks.shape
    half = 1
    while half < size:
        pairs = blocks.reshape(rows, size // (2 * half), 2, half)
        left, right = pairs[:, :, 0], pairs[:, :, 1]
        left += right
        right *= -2
        right += left
        half *= 2
    blocks *= np.float32(1 / np.sqrt(size))


def _random_bits(seed: int, count: int) -> np.ndarray:
    """Packed random bits, from a generator whose stream numpy guarantees."""
    return np.random.PCG64(seed).random_raw(-(-count // 64)).astype("<u8").view(np.uint8)


def _signs(bits: np.ndarray, place: slice) -> np.ndarray:
    """+1 and -1 for a piece that starts at a whole byte or is the only one."""
    found = np.unpackbits(bits[place.start // 8 :], count=place.stop - place.start)
    return found.astype(np.float32) * 2 - 1


def _bits_to_codes(planes: np.ndarray, place: slice) -> np.ndarray:
    codes = np.zeros(place.stop - place.start, np.uint8)
    for bit, plane in enumerate(planes):
        codes |= np.unpackbits(plane[place.start // 8 :], count=codes.size, bitorder="little") << bit
    return codes
