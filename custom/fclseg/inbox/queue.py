"""The studies on disk. Every change is one atomic write, so a killed inbox continues where it was.

    receiving -> ready -> segmented -> done
                   |          '-> held (dry run)
                   '-> refused (no short-axis cine, damaged ...) or failed (several attempts)

New images of a finished study open it again. Names of folders are hashes, and logs use the same.
"""

import contextlib
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from fclseg.documents import UNUSABLE, read_json
from fclseg.errors import FCLSegError
from fclseg.files import make_folder, whole_file, write_text

RECEIVING, READY, SEGMENTED, HELD = "receiving", "ready", "segmented", "held"
DONE, REFUSED, FAILED = "done", "refused", "failed"
FINISHED = (DONE, REFUSED, FAILED, HELD)
RECORD, IMAGES, RESULTS = "record.json", "images", "results"


def digest(uid: str) -> str:
    return hashlib.blake2b(uid.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class ReceivedStudy:
    """One study. ``sent`` are the UIDs that the archive has accepted; they are never sent again."""

    key: str
    state: str = RECEIVING
    changed: float = 0.0
    arrived: float = 0.0
    images: int = 0
    attempts: int = 0
    try_at: float = 0.0
    reason: str = ""
    outgoing: list[str] = field(default_factory=list)  # files below results/
    sent: list[str] = field(default_factory=list)
    listed: bool = False  # the archive was asked and has everything
    processed: list[str] = field(default_factory=list)  # digests of the images that the results come from


class Queue:
    """``add`` is called by the receiver's threads, everything else by the service."""

    def __init__(self, folder: Path):
        self.folder = folder / "studies"
        make_folder(self.folder)
        self.lock = threading.RLock()
        self._reopen()

    def _reopen(self) -> None:
        """An image whose record could not be written any more opens its study again."""
        for study in self.studies():
            if study.state in FINISHED and set(self.images(study.key)) - set(study.processed):
                self.save(replace(study, state=RECEIVING, attempts=0))

    def place(self, key: str) -> Path:
        return self.folder / key

    def add(self, study_uid: str, image_uid: str, content: bytes) -> str:
        """Store an image. Returns the study's key. An image that was received before changes nothing."""
        key, name = digest(study_uid), digest(image_uid)
        path = self.place(key) / IMAGES / f"{name}.dcm"
        with self.lock:
            study = self.study(key)
            if name in study.processed or path.is_file():
                self.save(replace(study, arrived=time.time()) if study.state == RECEIVING else study)
                return key
            with whole_file(path) as draft:
                draft.write_bytes(content)
            opened = RECEIVING if study.state in (*FINISHED, READY, SEGMENTED) else study.state
            self.save(
                replace(
                    study,
                    state=opened,
                    arrived=time.time(),
                    images=study.images + 1,
                    attempts=0,
                    reason="",
                    listed=False,
                )
            )
        return key

    def study(self, key: str) -> ReceivedStudy:
        """The record of a study. A damaged one is rebuilt from the images, which are what must not be lost."""
        path = self.place(key) / RECORD
        try:
            if path.is_file():
                return ReceivedStudy(**read_json(path))
        except (FCLSegError, *UNUSABLE):
            path.rename(path.with_name("damaged.json"))
        times = [image.stat().st_mtime for image in (self.place(key) / IMAGES).glob("*.dcm")]
        return ReceivedStudy(key, images=len(times), arrived=max(times, default=0.0))

    def save(self, study: ReceivedStudy) -> None:
        with self.lock:
            write_text(self.place(study.key) / RECORD, json.dumps(asdict(replace(study, changed=time.time()))))

    def update(self, key: str, only: str | tuple[str, ...], **changes: object) -> ReceivedStudy | None:
        """Change a study that is still in a state; None if images arrived meanwhile and it is not."""
        with self.lock:
            study = self.study(key)
            if study.state not in ((only,) if isinstance(only, str) else only):
                return None
            study = replace(study, **changes)  # type: ignore[arg-type]
            self.save(study)
            return study

    def studies(self) -> Iterator[ReceivedStudy]:
        for folder in sorted(self.folder.iterdir()):
            if folder.is_dir():
                yield self.study(folder.name)

    def complete(self, quiet_seconds: float) -> list[ReceivedStudy]:
        """Studies of which nothing arrived for a while become ready."""
        now = time.time()
        ended = [one for one in self.studies() if one.state == RECEIVING and one.images]
        ended = [one for one in ended if now - one.arrived >= quiet_seconds]
        return [one for study in ended if (one := self.update(study.key, RECEIVING, state=READY))]

    def next(self, state: str) -> ReceivedStudy | None:
        """The study that waits longest in a state and may be tried now."""
        waiting = [one for one in self.studies() if one.state == state and one.try_at <= time.time()]
        return min(waiting, key=lambda one: one.arrived, default=None)

    def images(self, key: str) -> list[str]:
        return sorted(path.stem for path in (self.place(key) / IMAGES).glob("*.dcm"))

    def forget_images(self, keep_days: float) -> None:
        """Remove the images and results of studies that are done; their records stay, so that nothing is sent twice."""
        for study in self.studies():
            if study.state == DONE and time.time() - study.changed > keep_days * 86400:
                with self.lock, contextlib.suppress(OSError):
                    for name in (IMAGES, RESULTS):
                        shutil.rmtree(self.place(study.key) / name, ignore_errors=True)
