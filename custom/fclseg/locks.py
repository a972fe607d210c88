"""Locks between processes. They do not wait forever, and they say which process holds them."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fclseg.errors import FCLSegError
from fclseg.files import private_folder

POLL_SECONDS = 0.05


@contextmanager
def held(path: Path, what: str, seconds: float) -> Iterator[None]:
    """Hold the lock file ``path`` for the block. The operating system releases it when the process dies.

    After ``seconds`` the wait ends with an error that names the process that holds ``what``.
    """
    private_folder(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + seconds
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "an unknown process"
                raise FCLSegError(f"{what} is in use by {holder}: wait for it to end, or end it, and try again")
            time.sleep(POLL_SECONDS)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock an open file if no other process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
