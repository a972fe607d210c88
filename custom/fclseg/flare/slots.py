"""Many simulated sites on few cores train one after the other instead of slowing each other down."""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_SECONDS = 0.05


@contextmanager
def training_slot(threads: int) -> Iterator[None]:
    """Wait for ``threads`` free cores of this machine. The operating system frees the slot of a process that dies."""
    folder = Path(tempfile.gettempdir()) / f"fclseg-slots-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    slots = max(1, (os.cpu_count() or 1) // threads)
    files = [open(folder / f"{threads}-threads-{index}", "w") for index in range(slots)]  # noqa: SIM115
    try:
        while not any(_try_lock(file) for file in files):
            time.sleep(POLL_SECONDS)
        yield
    finally:
        for file in files:
            file.close()


def _try_lock(file) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
