"""Heartbeats of a site's process, so that the server notices within a minute if it has died.

NVFlare does not tell the server's job when a site's machine or parent process dies. Without heartbeats it would wait
for the task's whole time-out, which is hours. A site sends heartbeats from its first task to the end of its process,
also while it sends a result. A simulation runs on one machine and does not need them.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from fclseg.flare.wire import site_place

TOPIC = "fclseg.alive"
BEAT_SECONDS = 10.0
SILENT_SECONDS = 60.0
"""Longer than network interruptions that recover on their own, which take up to 40 s."""


class Heartbeat:
    """The site side: one thread per process that sends a heartbeat every few seconds."""

    def __init__(self, seconds: float = BEAT_SECONDS):
        self._seconds = seconds
        self._thread: threading.Thread | None = None

    def start(self, fl_ctx: FLContext) -> None:
        """Start with the first task. Later calls do nothing."""
        if self._thread is None and not site_place(fl_ctx).simulated:
            self._thread = threading.Thread(target=self._beat, args=(fl_ctx.get_engine(),), daemon=True)
            self._thread.start()

    def _beat(self, engine: Any) -> None:
        while True:
            with contextlib.suppress(Exception), engine.new_context() as fl_ctx:  # the next heartbeat may get through
                engine.fire_and_forget_aux_request(topic=TOPIC, request=Shareable(), fl_ctx=fl_ctx, optional=True)
            time.sleep(self._seconds)


class Pulses:
    """The server side: when each site was last heard."""

    def __init__(self, seconds: float = SILENT_SECONDS, clock: Callable[[], float] = time.monotonic):
        self._seconds, self._clock = seconds, clock
        self._last: dict[str, float] = {}

    def listen(self, fl_ctx: FLContext) -> None:
        fl_ctx.get_engine().register_aux_message_handler(topic=TOPIC, message_handle_func=self._received)

    def _received(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        self.heard(fl_ctx.get_peer_context().get_identity_name())
        return make_reply(ReturnCode.OK)

    def heard(self, site: str) -> None:
        self._last[site] = self._clock()

    def is_silent(self, site: str) -> bool:
        """Whether a site has stopped sending heartbeats; False for sites of an earlier version, which send none."""
        return site in self._last and self._clock() - self._last[site] > self._seconds
