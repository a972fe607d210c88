"""Tensors that are not encoded: BatchNorm statistics and small tensors, sent as they are or as a float16 difference."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.exact import to_float16
from fclseg.federation.codecs.layout import Arrays, Layout

VARIANCE = "running_var"


@dataclass(frozen=True)
class Small:
    """``halves``: float32 tensors are sent as the float16 difference to the reference."""

    layout: Layout
    halves: bool

    @property
    def size(self) -> int:
        return sum(int(np.prod(shape)) * self._sent(kind).itemsize for _, shape, kind in self.layout.small)

    def encode(self, arrays: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> bytes:
        return b"".join(
            arrays[name].tobytes()
            if self._sent(kind) == kind
            else to_float16(arrays[name] - reference.get(name, kind.type(0))).tobytes()
            for name, _, kind in self.layout.small
        )

    def decode(self, data: bytes, reference: Mapping[str, np.ndarray]) -> Arrays:
        if len(data) != self.size:
            raise FCLSegError(f"an encoded message has {len(data)} bytes of small tensors instead of {self.size}")
        found, start = {}, 0
        for name, shape, kind in self.layout.small:
            sent = self._sent(kind)
            array = np.frombuffer(data, sent, int(np.prod(shape)), start).reshape(shape)
            start += array.nbytes
            if sent.kind == "f" and not np.isfinite(array).all():
                raise FCLSegError(f"an encoded message has values of {name} that are not finite: it is not used")
            if sent != kind:
                array = reference.get(name, kind.type(0)) + array.astype(kind)
                if name.endswith(VARIANCE):
                    array = np.maximum(array, 0)  # half precision may round to slightly below zero
            found[name] = np.array(array)
        return found

    def _sent(self, kind: np.dtype) -> np.dtype:
        return np.dtype(np.float16) if self.halves and kind == np.float32 else kind
