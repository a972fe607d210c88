"""Starts a simulated site again whose process has died, as systemd does with a real site.

NVFlare's simulator never asks a site again whose process has died, and does not tell the server: it would wait for the
task's whole time-out. The new process gets the same task and starts from the state that the site saved after its last
one, so nothing is lost. A site whose process keeps dying, for example for lack of memory, is left out at once.
"""

import functools
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

LOG = logging.getLogger(__name__)
MOST_RESTARTS = 3
"""Per site and simulation."""

OneTask = Callable[..., tuple[bool, Any, str | None]]
"""NVFlare's ``do_one_task``. It returns whether its thread stops, which site it runs next, and which one has ended."""


class SiteRestarts:
    """How often the process of each site has died while the run was under way."""

    def __init__(self) -> None:
        self._deaths: Counter[str] = Counter()
        self._over = threading.Event()

    def watch(self, do_one_task: OneTask, kill: Callable[[], None]) -> OneTask:
        """``SimulatorClientRunner.do_one_task`` that goes on after the death of a process. ``kill`` ends the process
        that this thread started last."""

        @functools.wraps(do_one_task)
        def watched(runner: Any, client: Any, *args: Any, **kwargs: Any) -> tuple[bool, Any, str | None]:
            try:
                stop, following, ended = do_one_task(runner, client, *args, **kwargs)
            except RuntimeError:  # the process was not ready in time, or has died before it was
                kill()
                stop, following, ended = True, None, client.client_name
            died = following is None or (stop and ended is None)  # killed, or stopped by an error of its own
            if died and not self._over.is_set():
                self._deaths[client.client_name] += 1
                if not self.gave_up(client.client_name):
                    LOG.warning("the process of %s has died and is started again", client.client_name)
                    return False, None, None  # the thread chooses a site that has no process: this one, or the next
            return stop, following, ended

        return watched

    def run_ended(self) -> None:
        """From now on, processes end because the run is over."""
        self._over.set()

    def gave_up(self, site: str) -> bool:
        return self._deaths[site] > MOST_RESTARTS
