"""Counts bytes on the server: the payload of messages by component, and the bytes NVFlare actually moved for them.

NVFlare has no byte counter per peer. Its cell, which is a party's end of the connection, calls filters for every
message, including chunks of streams. Our filter only counts. Headers name sender and receiver, so relays do not matter.
"""

import threading
from collections import Counter, defaultdict
from typing import Any

import msgpack
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.utils import buffer_len
from nvflare.fuel.f3.message import Message as CellMessage

from fclseg.flare.messages import Message

UP, DOWN = "up", "down"
SERVER = "server"
FRAME_BYTES = 16
"""The fixed part in front of every message on the wire."""


class Meter:
    """Counts of one round, by site and direction."""

    def __init__(self, job_id: str):
        self._job_id = job_id
        self._lock = threading.Lock()
        self._payload: dict[str, dict[str, Counter]] = defaultdict(lambda: {UP: Counter(), DOWN: Counter()})
        self._wire: dict[str, Counter] = defaultdict(Counter)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Messages as they are sent: after the server's filters on the way down, before them on the way up."""
        if event_type == EventType.AFTER_TASK_DATA_FILTER:
            self._count(DOWN, fl_ctx, fl_ctx.get_prop(FLContextKey.TASK_DATA))
        elif event_type == EventType.BEFORE_TASK_RESULT_FILTER:
            self._count(UP, fl_ctx, fl_ctx.get_prop(FLContextKey.TASK_RESULT))

    def _count(self, direction: str, fl_ctx: FLContext, shareable) -> None:
        if shareable is None or shareable.get_return_code() != ReturnCode.OK:
            return
        site = fl_ctx.get_peer_context().get_identity_name()
        with self._lock:
            self._payload[site][direction].update(Message.from_shareable(shareable).payload())

    def listen(self, cell: Cell) -> None:
        """Count the messages of this job that pass the server's cell."""
        for add in (
            cell.core_cell.add_incoming_filter,
            cell.core_cell.add_outgoing_request_filter,
            cell.core_cell.add_outgoing_reply_filter,
        ):
            add("*", "*", self.message)

    def message(self, message: CellMessage) -> None:
        """Count one message with its headers and the fixed part of its frame. The message is not changed."""
        for way, key in ((DOWN, MessageHeaderKey.DESTINATION), (UP, MessageHeaderKey.ORIGIN)):
            site, _, job_id = str(message.get_header(key, "")).partition(".")
            if job_id == self._job_id and site != SERVER:
                size = FRAME_BYTES + len(msgpack.packb(message.headers, default=str)) + _payload_bytes(message.payload)
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


def _payload_bytes(payload: object) -> int:
    return buffer_len(payload) if isinstance(payload, bytes | bytearray | memoryview | list) else 0
