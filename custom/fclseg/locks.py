"""Locks between processes. They do not wait forever, and they say which process holds them.

``filelock`` locks an open file on every system: the whole file on POSIX, its first byte on Windows. The holder is
therefore written behind the first byte, where others can read it.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import lock_descriptor

from fclseg.errors import PassingError
from fclseg.files import private_folder

POLL_SECONDS = 0.05
PEEKS = 3
HOLDER_AT = 1
SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
"""Never through a link, and not passed on to child processes; Windows has neither."""


@contextmanager
def held(path: Path, what: str, seconds: float, purpose: str = "") -> Iterator[None]:
    """Hold the lock file ``path`` for the block. The operating system releases it when the process dies.

    After ``seconds`` the wait ends with an error that names the process that holds ``what``, its machine and purpose.
    """
    private_folder(path.parent)
    descriptor = open_lock(path)
    try:
        deadline = time.monotonic() + seconds
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise PassingError(
                    f"{what} is in use by {_holder(descriptor)}: wait for it to end, or end it, and try again"
                )
            time.sleep(POLL_SECONDS)
        os.ftruncate(descriptor, HOLDER_AT)
        os.lseek(descriptor, HOLDER_AT, os.SEEK_SET)
        os.write(descriptor, holder_name(purpose).encode())
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a live process holds the lock file. A run that starts at this moment waits and is not disturbed.

    Another process may be looking at the same moment, so one failure does not count.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | SAFELY)
    except OSError:
        return False
    try:
        for _ in range(PEEKS):
            if try_lock(descriptor):
                return False
            time.sleep(POLL_SECONDS)
        return True
    finally:
        os.close(descriptor)


def open_lock(path: Path) -> int:
    """Open or create a lock file that only this account can use."""
    return os.open(path, os.O_RDWR | os.O_CREAT | SAFELY, 0o600)


def holder_name(purpose: str = "") -> str:
    """What others read about this process while it holds a lock."""
    since = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"process {os.getpid()} on {socket.gethostname()} since {since}" + (f" ({purpose})" if purpose else "")


def try_lock(descriptor: int) -> bool:
    """Lock an open file if no other process has locked it."""
    return lock_descriptor(descriptor, blocking=False)


def _holder(descriptor: int) -> str:
    os.lseek(descriptor, HOLDER_AT, os.SEEK_SET)
    return os.read(descriptor, 200).decode(errors="replace").strip() or "an unknown process"
