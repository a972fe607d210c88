"""A job's process at a site ends if it cannot tell the site's own process that it has started.

NVFlare 2.9.0 tries that for 15 seconds, then writes an error and goes on trying without a pause. A site that is killed
while a job starts left a process behind that took a whole core and filled the disk with its log, for ever.
"""

import functools
import time
from typing import Any

from nvflare.private.fed.client.client_app_runner import ClientAppRunner

PATIENCE = 120.0
"""Seconds; a busy machine may take long to start a job."""


class ParentLost(Exception):
    """The process ends with it as after any other failure of its job."""


class _Asking:
    """The cell of a client, for as long as its parent may still answer."""

    def __init__(self, cell: Any):
        self._cell, self._end = cell, time.monotonic() + PATIENCE

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cell, name)

    def send_request(self, **request: Any) -> Any:
        if time.monotonic() > self._end:
            raise ParentLost(f"the site's process has not answered for {PATIENCE:.0f} s: this job's process ends")
        return self._cell.send_request(**request)


class _Client:
    def __init__(self, client: Any):
        self.cell = _Asking(client.cell)


def end_without_parent() -> None:
    """For this process, once."""
    original = ClientAppRunner.notify_job_status
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def notify(self: Any, client: Any, job_id: str, status: str, timeout: float, retry_timeout: Any = None) -> None:
        longer = retry_timeout and max(retry_timeout, PATIENCE)  # until then it pauses between two tries
        original(self, _Client(client), job_id, status, timeout, longer)

    ClientAppRunner.notify_job_status = notify
