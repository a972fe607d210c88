"""Numbers without a scale: all bits, and half precision for small tensors."""

from dataclasses import dataclass

import numpy as np

from fclseg.federation.codecs.numbers import Numbers, Parts, read

LARGEST = np.float32(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Exact:
    """Every bit of a number. Bytes of the same significance are grouped, because sign and exponent repeat and compress.

    The codec passes the bits that differ from the reference, so numbers that hardly changed start with zeros.
    """

    def limits(self, numbers: Numbers) -> dict[str, int]:
        return {"bits": 4 * numbers.count}

    def encode(self, values: np.ndarray, numbers: Numbers) -> Parts:
        return {"bits": values.view(np.uint8).reshape(-1, 4).T.tobytes()}

    def decode(self, parts: Parts, numbers: Numbers) -> np.ndarray:
        planes = read(parts, "bits", np.uint8, 4 * numbers.count).reshape(4, -1)
        return np.ascontiguousarray(planes.T).reshape(-1).view(np.float32)


def to_float16(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -LARGEST, LARGEST).astype(np.float16)
