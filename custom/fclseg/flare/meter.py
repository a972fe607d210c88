"""Counting bytes on the server: the payload of messages by component, and the frames that NVFlare really moved.

Frames are counted at the server's cell (in a simulation the root cell, otherwise the one of the job's own process),
which everything to and from a site's job passes. Their headers name sender and receiver, so relays do not matter.
"""

import threading
from collections import Counter, defaultdict
from typing import Any

import msgpack
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.sfm.conn_manager import SfmFrameReceiver
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection

from fclseg.flare.messages import Message
from fclseg.flare.settings import Place

UP, DOWN = "up", "down"


class Meter:
    """Counts of one round, by site and direction."""

    def __init__(self, place: Place):
        self._cell = "server" if place.simulated else f"server.{place.job_id}"
        self._job_id = place.job_id
        self._lock = threading.Lock()
        self._payload: dict[str, dict[str, Counter]] = defaultdict(lambda: {UP: Counter(), DOWN: Counter()})
        self._wire: dict[str, Counter] = defaultdict(Counter)
        _listen(self)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Messages as they cross: after the server's filters on the way down, before them on the way up."""
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

    def frame(self, local: str, direction: str, headers: dict | None, size: int) -> None:
        """One frame that a cell of this process sent or received."""
        if local != self._cell or not headers:
            return
        key = MessageHeaderKey.DESTINATION if direction == DOWN else MessageHeaderKey.ORIGIN
        site, _, job_id = str(headers.get(key, "")).partition(".")
        if job_id == self._job_id:
            with self._lock:
                self._wire[site][direction] += size

    def take(self, sites: list[str]) -> dict[str, dict[str, Any]]:
        """The counts since the last call: {site: {up: {payload: {component: bytes}, wire: bytes}, down: ...}}.

        Of the given sites and of all others that moved something, such as an answer that came too late.
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


def _listen(meter: Meter) -> None:
    """NVFlare has no counter of bytes by peer, so its two frame functions are wrapped, once for each run."""
    send, receive = SfmConnection.send_frame, SfmFrameReceiver.process_frame

    def send_frame(self, prefix, headers, payload):
        send(self, prefix, headers, payload)
        meter.frame(self.local_endpoint.name, DOWN, headers, prefix.length)

    def process_frame(self, frame):
        prefix = Prefix.from_bytes(frame)
        headers = msgpack.unpackb(frame[PREFIX_LEN : PREFIX_LEN + prefix.header_len]) if prefix.header_len else None
        meter.frame(self.conn.local_endpoint.name, UP, headers, prefix.length)
        receive(self, frame)

    SfmConnection.send_frame, SfmFrameReceiver.process_frame = send_frame, process_frame
