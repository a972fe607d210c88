"""The slice store on disk: its name, its lock, and files that are either complete or absent."""

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from fclseg.anatomy.records import Volume
from fclseg.errors import DataError
from fclseg.files import private_folder

FORMAT = 2  # part of every store's name: increase it when pre-processing or the file format changes
IMAGES, LABEL_MAPS, INDEX = "images.f16", "labels.u8", "index.json"
_BLOCK, _BLOCKS = 4096, 64

# It logs the paths of locks. NVFlare can send a site's log to the server, which must not learn about folders.
logging.getLogger("filelock").setLevel(logging.WARNING)


class StoreDamagedError(Exception):
    """Raised if the folder contains no complete store."""


def store_key(volumes: Sequence[Volume], image_size: int, spacing: float, around: str = "") -> str:
    """A name that changes with any source file, any record and any parameter.

    Each source file contributes its path, size, modification time, first and last block; a gzip file ends with the
    checksum of its content.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((FORMAT, image_size, float(spacing), around)).encode())
    real = {path: path.resolve() for volume in volumes for path in (volume.image, volume.label) if path}
    for volume in volumes:  # resolved paths, so that it does not matter how the data folder was given
        label = real[volume.label] if volume.label else None
        digest.update(repr(replace(volume, image=real[volume.image], label=label)).encode())
    for path in sorted(set(real.values())):
        try:
            status = path.stat()
            digest.update(repr((status.st_size, status.st_mtime_ns)).encode())
            with open(path, "rb") as file:
                digest.update(file.read(_BLOCK))
                file.seek(max(0, status.st_size - _BLOCK))
                digest.update(file.read(_BLOCK))
        except OSError as error:
            raise DataError(
                f"{path}: cannot be read ({error.strerror}); copy it again or correct its permissions"
            ) from None
    return digest.hexdigest()


def sampled_digest(folder: Path) -> str:
    """A hash of file sizes and evenly spaced blocks: detects truncated or zeroed files without reading gigabytes."""
    digest = hashlib.blake2b(digest_size=16)
    for name in (IMAGES, LABEL_MAPS):
        size = (folder / name).stat().st_size
        digest.update(str(size).encode())
        with open(folder / name, "rb") as file:
            for block in range(_BLOCKS):
                file.seek(max(0, size - _BLOCK) * block // (_BLOCKS - 1))
                digest.update(file.read(_BLOCK))
    return digest.hexdigest()


@contextlib.contextmanager
def store_lock(folder: Path) -> Iterator[None]:
    """Only one process at a time may build ``folder``. The system releases the lock even if its holder is killed."""
    try:
        private_folder(folder.parent)
        lock = _lock(folder, wait=True)
    except OSError as error:
        hint = "make it writable or set FCLSEG_CACHE to another folder"
        raise DataError(f"{folder.parent}: the cache folder cannot be used ({error.strerror}); {hint}") from None
    try:
        yield
    finally:
        _unlock(folder, lock)


@contextlib.contextmanager
def drafting(folder: Path) -> Iterator[Path]:
    """A new folder to write to. It becomes ``folder`` in one step at the end, or is removed after an error.

    The caller holds the lock. Drafts left by killed processes are removed here, too.
    """
    draft = _draft(folder)
    try:
        _remove_abandoned(folder.parent)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        yield draft
        if folder.is_dir():
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)
        os.rename(draft, folder)
    except OSError as error:
        raise DataError(
            f"{draft}: slices cannot be written ({error.strerror}); free space or set FCLSEG_CACHE"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _draft(folder: Path) -> Path:
    return folder.with_name(folder.name + ".building")


def _lock_path(folder: Path) -> Path:
    return folder.with_name(folder.name + ".lock")


def _lock(folder: Path, wait: bool) -> FileLock:
    """The lock, or ``filelock.Timeout``. The library works on every system and detects a removed lock file."""
    lock = FileLock(_lock_path(folder))
    lock.acquire(timeout=-1 if wait else 0)
    return lock


def _unlock(folder: Path, lock: FileLock) -> None:
    with contextlib.suppress(OSError):  # Windows cannot remove an open file, so the lock file stays there
        os.unlink(_lock_path(folder))
    lock.release()


def _remove_abandoned(cache: Path) -> None:
    for draft in cache.glob("*.building"):
        folder = draft.with_name(draft.name.removesuffix(".building"))
        with contextlib.suppress(Timeout):
            lock = _lock(folder, wait=False)
            shutil.rmtree(draft, ignore_errors=True)
            _unlock(folder, lock)
