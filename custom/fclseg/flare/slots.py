"""Lets many simulated sites on few cores train one after the other instead of slowing each other down."""

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fclseg.errors import FCLSegError
from fclseg.locks import POLL_SECONDS, open_lock, try_lock


@contextmanager
def training_slot(threads: int) -> Iterator[None]:
    """Wait for ``threads`` free cores on this machine. The operating system frees the slot of a process that dies."""
    folder = slots_folder()
    slots = max(1, (os.cpu_count() or 1) // threads)
    names = [folder / f"{threads}-threads-{index}" for index in range(slots)]
    files = [open_lock(name) for name in names]
    try:
        while not any(try_lock(file) for file in files):
            time.sleep(POLL_SECONDS)
        yield
    finally:
        for file in files:
            os.close(file)


def slots_folder() -> Path:
    """The folder of the slots, below the temporary folder that all accounts share.

    Another account could have put a link or its own folder there first. Such a folder is never used.
    """
    folder = Path(tempfile.gettempdir()) / f"fclseg-slots-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise FCLSegError(
            f"{folder} is not a private folder of this account: remove it, or set TMPDIR to another folder"
        )
    return folder
