"""Counts the bytes of a round on the server: the payload of messages by component, and what the transport moved."""

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

UP, DOWN = "up", "down"


class Meter:
    """Counts of one round, by site and direction. A transport reports what it sends and receives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._payload: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: {UP: Counter(), DOWN: Counter()})
        self._wire: dict[str, Counter[str]] = defaultdict(Counter)

    def count(self, way: str, site: str, payload: Mapping[str, int]) -> None:
        """Count one message by component (``Message.payload``)."""
        with self._lock:
            self._payload[site][way].update(payload)

    def count_wire(self, way: str, site: str, size: int) -> None:
        """Count bytes on the wire."""
        with self._lock:
            self._wire[site][way] += size

    def take(self, sites: list[str]) -> dict[str, dict[str, Any]]:
        """The counts since the last call: {site: {up: {payload: {component: bytes}, wire: bytes}, down: ...}}.

        Covers the given sites and all others with traffic, such as an answer that arrived too late.
        """
        with self._lock:
            counts = {
                site: {
                    way: {"payload": dict(self._payload[site][way]), "wire": self._wire[site][way]}
                    for way in (UP, DOWN)
                }
                for site in sorted({*sites, *self._payload, *self._wire})
            }
            self._payload.clear()
            self._wire.clear()
        return counts
