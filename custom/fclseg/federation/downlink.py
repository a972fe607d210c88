"""Encodes the networks that come down, once per round for all sites, and tracks what each site has.

In every round the server encodes its networks F against ``held``, the networks H that the sites decoded before. It
decodes the message itself, so that H is the same at both ends. The rounding error is F - H and becomes part of the next
message, so the server's own networks are its memory. A site that missed rounds gets the messages of those rounds, or
the whole networks if these are shorter or the messages are no longer kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.codec import ChecksumError, Codec, checksum, claimed_checksum
from fclseg.federation.codecs.layout import Layout
from fclseg.federation.codecs.presets import LOSSLESS
from fclseg.federation.states import VARIANCE, Arrays, array_bytes

WHOLE = "whole"
INITIAL = -1
"""The round number for the initial networks, which every site derives from the run's seed."""

Messages = dict[str, Arrays]
"""By component: the messages that are needed, by round in four digits, or the single one named ``WHOLE``."""


@dataclass
class Downlink:
    """The server side. A checkpoint keeps all of it except the codec."""

    codec: Codec
    held: dict[str, Arrays]  # H, after round ``newest``
    newest: int = INITIAL
    sent: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)  # messages, by round and component
    acknowledged: dict[str, int | None] = field(default_factory=dict)  # newest round by site; None: send whole networks
    known: bool = True  # whether sites can derive the initial networks from the seed
    _whole: Messages = field(default_factory=dict)

    def advance(self, number: int, networks: Mapping[str, Arrays]) -> dict[str, Arrays]:
        """Encode the round's networks once for all sites. Returns them as the sites will decode them."""
        if number != self.newest + 1:
            raise FCLSegError(f"round {number} cannot follow round {self.newest}: start the run over")
        self.sent[number] = {}
        for name in self.held:
            encoded = self.codec.encode(networks[name], self.held[name])
            self.held[name], self.sent[number][name] = encoded.decoded, encoded.message
        self.newest, self._whole = number, {}
        room = sum(array_bytes(arrays) for arrays in self.held.values())
        while sum(message.size for parts in self.sent.values() for message in parts.values()) > room:
            del self.sent[min(self.sent)]  # the whole network is shorter than all of them
        return {name: dict(arrays) for name, arrays in self.held.items()}

    def messages(self, site: str) -> Messages:
        """The messages that bring this site to the newest round."""
        last = self.acknowledged.get(site, INITIAL if self.known else None)
        missed = range(last + 1, self.newest + 1) if last is not None else ()
        if last is None or not all(number in self.sent for number in missed):
            return self._whole_messages()
        steps = {name: {f"{number:04d}": self.sent[number][name] for number in missed} for name in self.held}
        if len(missed) > 1 and _size(steps) > _size(whole := self._whole_messages()):
            return whole
        return steps

    def acknowledge(self, site: str) -> None:
        """Record that the site has answered a task with the newest networks."""
        self.acknowledged[site] = self.newest

    def forget(self, site: str) -> None:
        """Record that the site could not decode what it was sent: next time it gets the whole networks."""
        self.acknowledged[site] = None

    def carry_over(self, previous: Mapping[str, Arrays], networks: dict[str, Arrays]) -> None:
        """F <- F + mean update. Sites started from H, so ``previous`` - H is added to the mean of what they sent."""
        for name in set(networks) & set(self.held):
            held, before = self.held[name], previous[name]
            networks[name] = {
                key: _carried(key, array, before[key], held[key]) for key, array in networks[name].items()
            }

    def state(self) -> tuple[dict[str, Arrays], dict[str, Any]]:
        parts = {f"held:{name}": arrays for name, arrays in self.held.items()}
        parts |= {f"sent:{number}": dict(messages) for number, messages in self.sent.items()}
        return parts, {"newest": self.newest, "acknowledged": self.acknowledged}

    def restore(self, parts: Mapping[str, Arrays], info: Mapping[str, Any]) -> None:
        """Restore what ``state`` returned."""
        self.held = {name: parts[f"held:{name}"] for name in self.held}
        numbers = [key.removeprefix("sent:") for key in parts if key.startswith("sent:")]
        self.sent = {int(number): dict(parts[f"sent:{number}"]) for number in sorted(numbers, key=int)}
        self.newest, self.acknowledged, self._whole = info["newest"], dict(info["acknowledged"]), {}

    def _whole_messages(self) -> Messages:
        if not self._whole:
            self._whole = {name: {WHOLE: LOSSLESS.encode(arrays).message} for name, arrays in self.held.items()}
        return self._whole


def follow(codec: Codec, held: Arrays, held_round: int, messages: Mapping[str, np.ndarray]) -> Arrays:
    """The site side: moves a component from ``held_round`` (or its initial state) to the newest round."""
    if WHOLE in messages:
        return LOSSLESS.decode(messages[WHOLE], held)
    for number in sorted(map(int, messages)):
        message = messages[f"{number:04d}"]
        if number > held_round + 1:
            raise FCLSegError(f"the messages start with round {number}, but this site has round {held_round}")
        if number == held_round + 1:
            held = codec.decode(message, held, held)
            held_round = number
        elif number == held_round and claimed_checksum(message) != checksum(held):
            raise ChecksumError(f"this site's networks of round {number} differ from the server's")
    return held


def reference(component: str, held: Mapping[str, Arrays], like: Arrays) -> Arrays | None:
    """What an upload is encoded against: the component that came down, or the online one if no target came down."""
    found = held.get(component, held.get("online"))
    return found if found and Layout.of(found) == Layout.of(like) else None


def _carried(name: str, mean: np.ndarray, before: np.ndarray, held: np.ndarray) -> np.ndarray:
    if mean.dtype.kind != "f":
        return mean
    carried = mean + (before - held)
    return np.maximum(carried, 0) if name.endswith(VARIANCE) else carried


def _size(messages: Messages) -> int:
    return sum(array_bytes(parts) for parts in messages.values())
