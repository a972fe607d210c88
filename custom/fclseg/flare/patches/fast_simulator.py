"""Removes the waiting from NVFlare's simulator: sites start from a prepared process, nothing sleeps for a second, and
a finished run waits for no site. A site whose process dies is started again (``site_restarts``).

NVFlare 2.9.0 sleeps for a second before each task, looks once per second whether the site's process is ready, and
starts a new interpreter for each task if it has fewer threads than sites. Neither a job nor an option of the command
changes that, so the server's part of a job replaces these three points in its own process. What the sites do is
unchanged.

When a run is over, the simulator waits until each site has heard of it: until a site that was left out has finished its
task, or until a process that was just started is ready, which can take minutes on a busy machine. Nobody uses what they
do, so they get ``END_SECONDS``.
"""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

from nvflare.private.fed.app.simulator import simulator_runner

from fclseg.flare.patches import site_starter
from fclseg.flare.patches.site_restarts import SiteRestarts
from fclseg.flare.patches.site_starter import SiteCommand

SHORT_SECONDS = 0.02
END_SECONDS = 30.0
"""What the sites get to end by themselves when the run is over."""


class StartedSite:
    """A site's process, with the part of ``subprocess.Popen`` that the simulator uses."""

    def __init__(self, arguments: list[str], answer: socket.socket):
        self.args = arguments
        self.returncode: int | None = None
        self._answer, self._received = answer, b""
        while b"\n" not in self._received:
            self._receive()
        first, _, self._received = self._received.partition(b"\n")
        self.pid = int(first)
        self._answer.setblocking(False)

    def _receive(self) -> None:
        data = self._answer.recv(64)
        if not data:
            raise EOFError
        self._received += data

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                self._receive()
            except BlockingIOError:
                return None
            except EOFError:
                self.returncode = -signal.SIGKILL  # somebody killed the process that waited for it
                return self.returncode
            self.returncode = int(self._received)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(SHORT_SECONDS)
        return code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended in between
                os.kill(self.pid, number)


class SiteStarter:
    """The simulator's end of ``site_starter``."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", site_starter.__name__, str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self._sites: WeakSet[StartedSite | subprocess.Popen[bytes]] = (
            WeakSet()
        )  # those that the simulator still looks at
        self._latest = threading.local()
        self.restarts = SiteRestarts()

    def start(self, arguments: list[str], env: dict[str, str], **_: Any) -> StartedSite | subprocess.Popen[bytes]:
        """Start ``python -m MODULE ...`` in place of ``subprocess.Popen``. NVFlare's options (a new session) are always
        the same."""
        site = self._start(arguments, env)
        self._sites.add(site)
        self._latest.site = site
        return site

    def kill_latest(self) -> None:
        """Kill the site that the calling thread started last."""
        self._latest.site.kill()

    def _start(self, arguments: list[str], env: dict[str, str]) -> StartedSite | subprocess.Popen[bytes]:
        """A copy of the prepared process, or a new interpreter.

        A job with code of its own gets a new interpreter, because that code may replace what is already imported. So
        does every site if the starter has died.

        This process must not be forked, as NVFlare does it: OpenBLAS stops its threads when that happens, and a server
        that is computing a mean at that moment waits for them for ever.
        """
        if not brings_code(env):
            module, rest = arguments[2], arguments[3:]
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    socket.send_fds(self._requests, [SiteCommand(module, rest, env).encode()], [theirs.fileno()])
                return StartedSite(arguments, ours)
            except (OSError, EOFError):
                ours.close()
        return subprocess.Popen(arguments, env=env, start_new_session=True)

    def run_ended(self) -> None:
        """Kill the sites that are still there after ``END_SECONDS``, unless the simulator has ended by then."""
        self.restarts.run_ended()
        threading.Thread(target=self._end_sites, daemon=True).start()

    def _end_sites(self) -> None:
        time.sleep(END_SECONDS)
        while True:  # the simulator may start the next site instead of the one that was killed
            for site in list(self._sites):
                site.kill()
            time.sleep(1.0)

    def close(self) -> None:
        """End the starter. The sites that it started go on."""
        self._requests.close()


def brings_code(env: Mapping[str, str]) -> bool:
    """Whether the folders that NVFlare adds for a job contain Python files."""
    added = set(env.get("PYTHONPATH", "").split(os.pathsep)) - {"", *sys.path}  # NVFlare also passes all of sys.path
    return any(next(Path(folder).rglob("*.py"), None) for folder in added)


def in_simulator() -> bool:
    """Whether this process is the one that the simulator starts for the server. A context, which would say so, comes
    too late to import everything in the meantime."""
    target = getattr(multiprocessing.current_process(), "_target", None)
    return isinstance(getattr(target, "__self__", None), simulator_runner.SimulatorRunner)


STARTERS: list[SiteStarter] = []
"""The one of this process, if it is the simulator's server."""


def end_simulation() -> None:
    """Called when the run is over. Does nothing outside the simulator."""
    for starter in STARTERS:
        starter.run_ended()


def gave_up(site: str) -> bool:
    """Whether a simulated site is no longer started because its process keeps dying. False outside the simulator."""
    return any(starter.restarts.gave_up(site) for starter in STARTERS)


def speed_up_simulator() -> None:
    """Called in the server's process of a job. Does nothing outside the simulator."""
    if not in_simulator() or sys.platform != "linux":
        return
    starter = SiteStarter()
    STARTERS.append(starter)
    vars(simulator_runner).update(
        subprocess=SimpleNamespace(Popen=starter.start, TimeoutExpired=subprocess.TimeoutExpired),
        time=SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(min(seconds, SHORT_SECONDS))),
    )
    runner = simulator_runner.SimulatorClientRunner
    runner.do_one_task = starter.restarts.watch(runner.do_one_task, starter.kill_latest)
