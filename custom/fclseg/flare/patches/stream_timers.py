"""One thread that forgets received streams, instead of one thread per stream, and short notes about those it keeps.

NVFlare 2.9.0 keeps every received stream for a while, to recognise parts that are sent twice, and starts a thread
(``threading.Timer``) for each. A site receives several streams per task and one per request for work, so a long run had
more than a thousand waiting threads, and about 6 kB of memory for each stream. Everything else about streams stays as
NVFlare does it.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.stream_types import StreamError

SETTLED_SECONDS = 30.0
"""After this time somebody has read a complete stream, or nobody will."""


class Appointment:
    """What ``RxTask`` expects of a timer: it can be cancelled."""

    def __init__(self, action: Callable[[], None]):
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Clock:
    """Runs actions at their time, all in one daemon thread that starts with the first one."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Appointment]] = []
        self._changed, self._numbers = threading.Condition(), itertools.count()
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, action: Callable[[], None]) -> Appointment:
        appointment = Appointment(action)
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), appointment))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="fclseg_streams", daemon=True)
                self._thread.start()
            self._changed.notify()
        return appointment

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > time.monotonic():
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                action = heapq.heappop(self._due)[2].action
            if action is not None:
                action()


class FinishedStream:
    """What is kept of a received stream: enough to confirm parts that arrive again."""

    __slots__ = ("cell", "offset_ack", "origin", "received_offset", "seq", "seq_ack", "sid")
    completed = reliable = True
    ack_lock = threading.Lock()
    _send_ack = RxTask._send_ack

    def __init__(self, task: RxTask):
        self.cell, self.origin, self.sid = task.cell, task.origin, task.sid
        self.received_offset, self.offset_ack = task.received_offset, task.offset_ack
        self.seq, self.seq_ack = task.seq, task.seq_ack

    def process_chunk(self, message: Message) -> bool:
        self._send_ack(self.received_offset, self.seq)
        return False

    def stop(self, error: StreamError | None = None, notify: bool = True) -> None:
        """The sender gave up, but everything had arrived."""


def replace_by_note(task: RxTask) -> FinishedStream | None:
    """Keep a note in place of a stream that has been received and read. None: it is still needed, or forgotten."""
    with RxTask.map_lock:
        key = (task.origin, task.sid)
        if RxTask.rx_task_map.get(key) is not task or not task.completed or task.failed or task.chunks:
            return None
        note = RxTask.rx_task_map[key] = FinishedStream(task)
    return note


def forget(note: FinishedStream) -> None:
    with RxTask.map_lock:
        if RxTask.rx_task_map.get((note.origin, note.sid)) is note:
            del RxTask.rx_task_map[note.origin, note.sid]


def share_stream_timers(clock: Clock | None = None, settled: float = SETTLED_SECONDS) -> None:
    """Let all streams of this process use one clock. Called once by each job process."""
    shared = clock or Clock()

    def schedule(task: RxTask, ttl: float | None = None) -> None:
        with task.stop_lock:
            if task.cleanup_timer is None:
                seconds = task.completed_task_ttl if ttl is None else ttl
                task.cleanup_timer = shared.after(seconds, task._remove_task)
                if seconds > settled:
                    shared.after(settled, lambda: shrink(task, seconds - settled))

    def shrink(task: RxTask, seconds: float) -> None:
        if note := replace_by_note(task):
            task.cleanup_timer.cancel()
            shared.after(seconds, lambda: forget(note))

    RxTask._schedule_remove_task = schedule
