"""Counts the bytes that NVFlare moves for a job, on the server.

NVFlare has no byte counter per peer. Its cell, which is a party's end of the connection, calls filters for every
message, including chunks of streams. Ours only counts. Headers name sender and receiver, so relays do not matter.
"""

import msgpack
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.utils import buffer_len
from nvflare.fuel.f3.message import Message as CellMessage

from fclseg.engine.meter import DOWN, UP, Meter

SERVER = "server"
FRAME_BYTES = 16
"""The fixed part in front of every message on the wire."""


class WireMeter(Meter):
    """A meter that also counts the messages of one job at the server's cell."""

    def __init__(self, job_id: str):
        super().__init__()
        self._job_id = job_id

    def listen(self, cell: Cell) -> None:
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
                self.count_wire(way, site, size)


def _payload_bytes(payload: object) -> int:
    return buffer_len(payload) if isinstance(payload, bytes | bytearray | memoryview | list) else 0
