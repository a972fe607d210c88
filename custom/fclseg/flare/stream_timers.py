"""One thread that forgets received streams, instead of one thread per stream.

NVFlare 2.9.0 keeps every received stream for a while, to recognise parts that are sent twice, and starts a thread
(``threading.Timer``) for each. A site receives several streams per task and one per request for work, so a long run had
more than a thousand waiting threads, with their memory. Everything else about streams stays as NVFlare does it.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from nvflare.fuel.f3.streaming.byte_receiver import RxTask


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


def share_stream_timers(clock: Clock | None = None) -> None:
    """Let all streams of this process use one clock. Called once by each job process."""
    shared = clock or Clock()

    def schedule(task: RxTask, ttl: float | None = None) -> None:
        with task.stop_lock:
            if task.cleanup_timer is None:
                seconds = task.completed_task_ttl if ttl is None else ttl
                task.cleanup_timer = shared.after(seconds, task._remove_task)

    RxTask._schedule_remove_task = schedule
