"""Atomic file writes: a file is written under a temporary name and then renamed.

When a write returns, the data is on disk (fsync), so it survives a power cut.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fclseg.errors import DataError


@contextlib.contextmanager
def whole_file(path: Path | str) -> Iterator[Path]:
    """A temporary path to write to. It becomes ``path`` if the block succeeds and is removed otherwise."""
    path = Path(path)
    draft = path.with_name(f".{os.getpid()}.{path.name}")  # keeps the suffix, from which some writers choose the format
    try:
        private_folder(path.parent)
        yield draft
        _to_disk(draft)
        os.replace(draft, path)
        with contextlib.suppress(OSError):  # not every file system supports it
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
    """The complete lines of a file, or none if it does not exist. An incomplete last line is left out."""
    if path.exists() and not path.is_file():  # reading a named pipe would wait forever
        raise DataError(f"{path}: is not a regular file; restore it from a backup")
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except UnicodeDecodeError:
        raise DataError(f"{path}: is damaged (not a text file); restore it from a backup") from None
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def append_line(path: Path, line: str) -> None:
    """Append a line to a file. What a crash or a full disk left of an earlier line is cut off first: two lines in one
    could not be read again."""
    try:
        with open(path, "a+b") as file:
            _cut_torn_line(file)
            file.write(line.encode() + b"\n")
        _to_disk(path)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}): free space or choose another folder") from None


def _cut_torn_line(file: BinaryIO) -> None:
    size = end = file.seek(0, os.SEEK_END)
    while end and (file.seek(end - 1), file.read(1)) != (end - 1, b"\n"):
        end -= 1
    if end < size:
        file.truncate(end)


def _to_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on disk."""
    descriptor = os.open(
        path, os.O_RDONLY if path.is_dir() else os.O_RDWR
    )  # Windows cannot flush a file that is open for reading
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_folder(folder: Path) -> None:
    """Create a folder that only this account may enter. An existing folder keeps its permissions.

    Runs, caches and reports contain images and names of patients, and other people may have accounts on the machine.
    """
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def make_folder(folder: Path) -> None:
    """Create a private folder if needed. Raises a one-sentence error if it is not writable."""
    try:
        private_folder(folder)
        by_account = os.access in os.supports_effective_ids  # not on Windows
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=by_account):  # a folder that existed before
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise DataError(f"{folder} cannot be written to ({error.strerror}): choose another folder") from None
