"""The networks that come down, as the server knows them to be at the sites: one encoding per round, for everybody.

Every round the server codes its networks F against ``held``, the networks H that the sites decoded before, and decodes
the message itself, so that H moves on at both ends alike. What rounding lost is F - H and part of the next message:
the server's own networks are its memory. A site that missed rounds gets the messages of those rounds, or the whole
networks where these are shorter or the messages are gone.
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
from fclseg.randomness import derive_seed

WHOLE = "whole"
INITIAL = -1
"""The round after which everybody holds the networks that follow from the run's seed."""

Messages = dict[str, Arrays]
"""By component: the messages that it takes, by round in four digits, or the one named ``WHOLE``."""


@dataclass
class Downlink:
    """The server's side; a checkpoint keeps all of it but the codec."""

    codec: Codec
    seed: int
    held: dict[str, Arrays]  # H, after round ``newest``
    newest: int = INITIAL
    sent: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)  # messages, by round and component
    acknowledged: dict[str, int | None] = field(default_factory=dict)  # newest round of each site; None: needs a whole
    known: bool = True  # whether sites can derive the initial networks from the seed
    _whole: Messages = field(default_factory=dict)

    def advance(self, number: int, networks: Mapping[str, Arrays]) -> dict[str, Arrays]:
        """Code the round's networks once, for all sites; returns them as the sites will decode them."""
        if number != self.newest + 1:
            raise FCLSegError(f"round {number} cannot follow round {self.newest}: start the run over")
        self.sent[number] = {}
        for name in self.held:
            seed = message_seed(self.seed, "server", number, name)
            encoded = self.codec.encode(networks[name], self.held[name], seed=seed)
            self.held[name], self.sent[number][name] = encoded.decoded, encoded.message
        self.newest, self._whole = number, {}
        room = sum(array_bytes(arrays) for arrays in self.held.values())
        while sum(message.size for parts in self.sent.values() for message in parts.values()) > room:
            del self.sent[min(self.sent)]  # a whole is shorter than all of them
        return {name: dict(arrays) for name, arrays in self.held.items()}

    def messages(self, site: str) -> Messages:
        """What brings this site to the newest round."""
        last = self.acknowledged.get(site, INITIAL if self.known else None)
        missed = range(last + 1, self.newest + 1) if last is not None else ()
        if last is None or not all(number in self.sent for number in missed):
            return self._whole_messages()
        steps = {name: {f"{number:04d}": self.sent[number][name] for number in missed} for name in self.held}
        if len(missed) > 1 and _size(steps) > _size(whole := self._whole_messages()):
            return whole
        return steps

    def acknowledge(self, site: str) -> None:
        """The site has answered a task that brought the newest networks."""
        self.acknowledged[site] = self.newest

    def forget(self, site: str) -> None:
        """The site could not decode what it was sent: the whole networks are next."""
        self.acknowledged[site] = None

    def carry_over(self, previous: Mapping[str, Arrays], networks: dict[str, Arrays]) -> None:
        """F <- F + mean update: add to the mean of what sites sent, which began at H, what H lacked of ``previous``."""
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
        """Take up what ``state`` gave."""
        self.held = {name: parts[f"held:{name}"] for name in self.held}
        numbers = [key.removeprefix("sent:") for key in parts if key.startswith("sent:")]
        self.sent = {int(number): dict(parts[f"sent:{number}"]) for number in sorted(numbers, key=int)}
        self.newest, self.acknowledged, self._whole = info["newest"], dict(info["acknowledged"]), {}

    def _whole_messages(self) -> Messages:
        if not self._whole:
            self._whole = {name: {WHOLE: LOSSLESS.encode(arrays).message} for name, arrays in self.held.items()}
        return self._whole


def follow(
    codec: Codec, seed: int, component: str, held: Arrays, held_round: int, messages: Mapping[str, np.ndarray]
) -> Arrays:
    """The site's side: from the component as decoded in ``held_round``, or as it was initially, to the newest round."""
    if WHOLE in messages:
        return LOSSLESS.decode(messages[WHOLE], held)
    for number in sorted(map(int, messages)):
        message = messages[f"{number:04d}"]
        if number > held_round + 1:
            raise FCLSegError(f"the messages begin with round {number}, and this site holds round {held_round}")
        if number == held_round + 1:
            held = codec.decode(message, held, held, seed=message_seed(seed, "server", number, component))
            held_round = number
        elif number == held_round and claimed_checksum(message) != checksum(held):
            raise ChecksumError(f"this site holds another round {number} than the server")
    return held


def message_seed(seed: int, sender: str, number: int, component: str) -> int:
    return derive_seed(seed, sender, number, component, "codec")


def reference(component: str, held: Mapping[str, Arrays], like: Arrays) -> Arrays | None:
    """What an upload is coded against: the component as it came down; a target that did not, against the online one."""
    found = held.get(component, held.get("online"))
    return found if found and Layout.of(found) == Layout.of(like) else None


def _carried(name: str, mean: np.ndarray, before: np.ndarray, held: np.ndarray) -> np.ndarray:
    if mean.dtype.kind != "f":
        return mean
    carried = mean + (before - held)
    return np.maximum(carried, 0) if name.endswith(VARIANCE) else carried


def _size(messages: Messages) -> int:
    return sum(array_bytes(parts) for parts in messages.values())
