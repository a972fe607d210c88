"""Files that are whole or not there: written beside their place and moved into it in one step.

They are on the disk, not only in the machine's memory, when a write returns: a power cut takes nothing back.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from fclseg.errors import DataError


@contextlib.contextmanager
def whole_file(path: Path | str) -> Iterator[Path]:
    """A draft to write to. It becomes ``path`` when the block ends well, and otherwise nothing is left of it."""
    path = Path(path)
    draft = path.with_name(f".{os.getpid()}.{path.name}")  # the ending stays: some writers choose their format by it
    try:
        private_folder(path.parent)
        yield draft
        _to_disk(draft)
        os.replace(draft, path)
        with contextlib.suppress(OSError):  # not every file system can
            _to_disk(path.parent)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}): free space or choose another folder") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def write_text(path: Path | str, text: str) -> None:
    """Write a text file in one step."""
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def whole_lines(path: Path) -> list[str]:
    """The lines of a file (none where it is not there) but not half a line, without a line end, that a crash left."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def append_line(path: Path, line: str) -> None:
    """Add a line to a file; what a crash can leave of it ``whole_lines`` passes over."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    _to_disk(path)


def _to_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_folder(folder: Path) -> None:
    """Create a folder that only this account may enter; one that was there already keeps its rights.

    Runs, caches and reports hold images and names of patients, and other people may have accounts on the machine.
    """
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def make_folder(folder: Path) -> None:
    """Create a private folder if need be, and refuse in one sentence where nothing can be written."""
    try:
        private_folder(folder)
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):  # one that was there already
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise DataError(f"{folder} cannot be written to ({error.strerror}): choose another folder") from None
