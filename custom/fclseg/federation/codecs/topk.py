"""Only the largest numbers, with compact indices; what is left out counts as 0."""

import math
from dataclasses import dataclass, field

import numpy as np

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.exact import Float16
from fclseg.federation.codecs.numbers import Coder, Numbers, Parts

BITMAP, GAPS = 0, 1
FULL = 255
"""A gap byte that means: skip 255 positions, and the gap continues."""


@dataclass(frozen=True)
class TopK:
    """The fraction ``share`` of numbers with the largest absolute values, encoded by ``values``."""

    share: float = 0.05
    values: Coder = field(default_factory=Float16)

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise FCLSegError(f"'share' cannot be {self.share}: give a number in (0, 1]")

    def limits(self, numbers: Numbers) -> dict[str, int]:
        kept = self._kept(numbers)
        bitmap, gaps = -(-numbers.count // 8), kept.count + (numbers.count - kept.count) // FULL
        return {"places": 1 + min(bitmap, gaps), **self.values.limits(kept)}

    def encode(self, values: np.ndarray, numbers: Numbers, seed: int) -> Parts:
        kept = self._kept(numbers)
        places = _largest(values, kept.count)
        bitmap = np.zeros(values.size, np.uint8)
        bitmap[places] = 1
        forms = {BITMAP: np.packbits(bitmap, bitorder="little").tobytes(), GAPS: _to_gaps(places)}
        form = min(forms, key=lambda name: len(forms[name]))
        return {"places": bytes([form]) + forms[form], **self.values.encode(values[places], kept, seed)}

    def decode(self, parts: Parts, numbers: Numbers, seed: int) -> np.ndarray:
        kept = self._kept(numbers)
        form, data = parts["places"][:1], np.frombuffer(parts["places"], np.uint8)[1:]
        if form == bytes([BITMAP]) and data.size == -(-numbers.count // 8):
            places = np.flatnonzero(np.unpackbits(data, count=numbers.count, bitorder="little"))
        elif form == bytes([GAPS]):
            places = _from_gaps(data)
        else:
            raise FCLSegError("an encoded message has positions in an unknown format: it is damaged and not used")
        if places.size != kept.count or (places.size and places[-1] >= numbers.count):
            raise FCLSegError(f"an encoded message has {places.size} positions instead of {kept.count}: it is not used")
        values = np.zeros(numbers.count, np.float32)
        values[places] = self.values.decode(parts, kept, seed)
        return values

    def _kept(self, numbers: Numbers) -> Numbers:
        return Numbers(min(numbers.count, math.ceil(self.share * numbers.count)))


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """The positions of the ``count`` largest absolute values, in order. Ties at the border go to the first."""
    if count == 0:
        return np.zeros(0, np.int64)
    sizes = np.abs(values)
    sizes.partition(values.size - count)
    border = sizes[values.size - count]
    np.abs(values, out=sizes)
    above = np.flatnonzero(sizes > border)
    return np.sort(np.concatenate([above, np.flatnonzero(sizes == border)[: count - above.size]]))


def _to_gaps(places: np.ndarray) -> bytes:
    """The number of positions skipped before each, in bytes; 255 continues in the next byte."""
    gaps = np.diff(places, prepend=-1) - 1
    full = gaps // FULL
    coded = np.full(int(places.size + full.sum()), FULL, np.uint8)
    coded[np.cumsum(full + 1) - 1] = gaps % FULL
    return coded.tobytes()


def _from_gaps(data: np.ndarray) -> np.ndarray:
    """The positions of ``_to_gaps``, which always increase."""
    steps = np.cumsum(data.astype(np.int64) + (data != FULL))
    return steps[data != FULL] - 1
