"""A network as one array of bytes: header, small tensors, encoded numbers.

The sender encodes the difference to a reference network that both ends have, plus the rounding error of earlier
messages (its ``memory``). It decodes its own message, so it knows what the receiver will get, and sends the checksum of
that network. The receiver takes every size from its own layout and codec, never from the message.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.entropy import expand, shrink
from fclseg.federation.codecs.exact import Exact
from fclseg.federation.codecs.layout import Arrays, Layout
from fclseg.federation.codecs.numbers import Coder, Parts
from fclseg.federation.codecs.small import Small

HEADER = struct.Struct("<4s8s16s")  # format, codec, checksum of the decoded network
LENGTH = struct.Struct("<?Q")  # for each part: whether it is compressed, and its bytes
FORMAT = b"FCL1"
SMALL = "small"

Network = Mapping[str, np.ndarray]


class ChecksumError(FCLSegError):
    """The decoded network is not the sender's: the message is damaged, or the two ends have different references."""


@dataclass(frozen=True)
class Encoded:
    """The result of encoding: the message, the network that the receiver will decode, and the sender's new memory."""

    message: np.ndarray
    decoded: Arrays
    memory: Arrays


@dataclass(frozen=True)
class Codec:
    """``numbers`` encodes the large tensors, ``halves`` is for the small ones, ``compress`` applies zstandard."""

    numbers: Coder = field(default_factory=Exact)
    halves: bool = False
    compress: bool = True

    def __post_init__(self) -> None:
        if self.lossless and self.halves:
            raise FCLSegError("a lossless codec cannot use halves: leave one of them out")

    def encode(self, arrays: Network, reference: Network | None = None, *, memory: Network | None = None) -> Encoded:
        """Encode ``arrays`` against ``reference`` (None: zeros), with the rounding error of earlier messages."""
        layout, reference, memory = Layout.of(arrays), reference or {}, memory or {}
        _check(layout, reference)
        small = {name: _plus(arrays[name], memory.get(name)) for name, *_ in layout.small}
        parts = {SMALL: Small(layout, self.halves).encode(small, reference)}
        parts |= self.numbers.encode(self._difference(layout, arrays, reference, memory), layout.numbers)
        body = [self._stored(part) for part in parts.values()]
        decoded = (
            {name: arrays[name] for name, *_ in layout.tensors}
            if self.lossless
            else self._join(layout, parts, reference)
        )
        parts.clear()
        lengths = b"".join(LENGTH.pack(compressed, len(data)) for compressed, data in body)
        header = HEADER.pack(FORMAT, self.fingerprint, checksum(decoded)) + lengths
        message = np.frombuffer(b"".join([header, *(data for _, data in body)]), np.uint8)
        lost = {
            name: _plus(array, memory.get(name)) - decoded[name]
            for name, array in arrays.items()
            if array.dtype.kind == "f" and not self.lossless
        }
        return Encoded(message, decoded, lost)

    def decode(self, message: object, like: Network, reference: Network | None = None) -> Arrays:
        """The sender's ``decoded``, bit for bit; ``like`` gives the names, shapes and types of the tensors."""
        layout, reference = Layout.of(like), reference or {}
        _check(layout, reference)
        parts, expected = self._parts(message, layout)
        decoded = self._join(layout, parts, reference)
        if checksum(decoded) != expected:
            raise ChecksumError("a decoded network is not the one that was sent: it is not used")
        return decoded

    def bound(self, like: Network) -> int:
        """The largest possible message of such a network, for any values."""
        limits = self._limits(Layout.of(like))
        return HEADER.size + sum(LENGTH.size + limit for limit in limits.values())

    @property
    def lossless(self) -> bool:
        return isinstance(self.numbers, Exact)

    @cached_property
    def fingerprint(self) -> bytes:
        return hashlib.blake2b(repr(self).encode(), digest_size=8).digest()

    def _difference(self, layout: Layout, arrays: Network, reference: Network, memory: Network) -> np.ndarray:
        """The vector to encode. A lossless codec takes the bits that differ, because float differences are rounded."""
        flat = layout.flatten(arrays)
        if self.lossless:
            layout.combine(flat.view(np.uint32), reference, np.bitwise_xor)
            return flat
        layout.combine(flat, memory, np.add)
        layout.combine(flat, reference, np.subtract)
        if not np.isfinite(flat).all():
            raise FCLSegError("a network with values that are not finite cannot be encoded: lower the learning rate")
        return flat

    def _join(self, layout: Layout, parts: Parts, reference: Network) -> Arrays:
        """The decoded network, in the layout's order. Takes the parts, so that they need no memory beside it."""
        flat, small = self.numbers.decode(parts, layout.numbers), parts[SMALL]
        parts.clear()
        if self.lossless:
            layout.combine(flat.view(np.uint32), reference, np.bitwise_xor)
        else:
            with np.errstate(invalid="ignore", over="ignore"):  # from a damaged message; refused below
                layout.combine(flat, reference, np.add)
        found = layout.unflatten(flat) | Small(layout, self.halves).decode(small, reference)
        decoded = {name: found[name] for name, *_ in layout.tensors}
        if not all(np.isfinite(array).all() for array in decoded.values() if array.dtype.kind == "f"):
            raise FCLSegError("an encoded message gives values that are not finite: it is not used")
        return decoded

    def _limits(self, layout: Layout) -> dict[str, int]:
        return {SMALL: Small(layout, self.halves).size, **self.numbers.limits(layout.numbers)}

    def _stored(self, part: bytes) -> tuple[bool, bytes]:
        """Compressed if that is shorter, so that a part never exceeds its limit."""
        shrunk = shrink(part) if self.compress else part
        return (True, shrunk) if len(shrunk) < len(part) else (False, part)

    def _parts(self, message: object, layout: Layout) -> tuple[Parts, bytes]:
        """Split the message into its parts, each within its limit, and the checksum."""
        limits = self._limits(layout)
        start = HEADER.size + LENGTH.size * len(limits)
        if not isinstance(message, np.ndarray) or message.dtype != np.uint8 or message.ndim != 1:
            raise FCLSegError("an encoded message is not an array of bytes: it is not used")
        if not start <= message.size <= start + sum(limits.values()):
            raise FCLSegError(f"an encoded message cannot have {message.size} bytes: it is not used")
        header = message[:start].tobytes()
        form, fingerprint, expected = HEADER.unpack_from(header)
        if (form, fingerprint) != (FORMAT, self.fingerprint):
            raise FCLSegError("an encoded message was made by another codec or version: run the same job at every site")
        parts: Parts = {}
        for index, (name, limit) in enumerate(limits.items()):
            compressed, length = LENGTH.unpack_from(header, HEADER.size + LENGTH.size * index)
            if length > limit or start + length > message.size:
                raise FCLSegError(f"an encoded message claims {length} bytes of {name}: it is damaged and not used")
            part = message[start : start + length]
            parts[name] = expand(part.data, limit) if compressed else part.tobytes()
            start += length
        if start != message.size:
            raise FCLSegError(f"an encoded message has {message.size - start} bytes too many: it is not used")
        return parts, expected


def checksum(arrays: Network) -> bytes:
    """A checksum over names, shapes, types and every bit of a network."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()


def claimed_checksum(message: np.ndarray) -> bytes:
    """The checksum of the network that a message claims to contain."""
    return HEADER.unpack(message[: HEADER.size].tobytes())[2] if message.size >= HEADER.size else b""


def _check(layout: Layout, reference: Network) -> None:
    if reference and Layout.of({name: reference[name] for name, *_ in layout.tensors if name in reference}) != layout:
        raise FCLSegError(
            "the reference has different tensors than the network to encode: run the same preset at both ends"
        )


def _plus(array: np.ndarray, lost: np.ndarray | None) -> np.ndarray:
    return array if lost is None else array + lost
