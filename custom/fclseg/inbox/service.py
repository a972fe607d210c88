"""The inbox: receives, waits until a study is complete, segments it and sends the results, one study at a time."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fclseg.errors import FCLSegError, PassingError
from fclseg.files import make_folder
from fclseg.inbox.log import Log
from fclseg.inbox.queue import DONE, FAILED, HELD, READY, REFUSED, RESULTS, SEGMENTED, Queue, ReceivedStudy
from fclseg.inbox.receiver import Receiver
from fclseg.inbox.sender import send, unlisted
from fclseg.inbox.settings import Settings
from fclseg.inbox.status import StatusPage
from fclseg.inbox.watcher import Watcher
from fclseg.inbox.worker import REFUSED_CODE, outgoing, run_worker
from fclseg.locks import held

MOST_ATTEMPTS = 3
POLL_SECONDS = 1.0
CLEANING_SECONDS = 3600.0


class Service:
    def __init__(self, settings: Settings, log: Log | None = None):
        make_folder(settings.folder)
        self.settings, self.log = settings, log or Log(settings.folder / "inbox.log")
        self.queue = Queue(settings.folder)
        self.receiver = Receiver(settings, self.queue, self.log)
        self.watcher = Watcher(settings.watch, self.queue, self.log) if settings.watch else None
        self._cleaned = 0.0

    def run(self) -> None:
        """Until Ctrl-C or SIGTERM. What was received stays on disk, and the same command continues."""
        settings = self.settings
        with held(settings.folder / "inbox.lock", f"the inbox {settings.folder}", 0.0, "fclseg inbox"):
            self.receiver.start()
            page = StatusPage(settings, self.queue, self.receiver)
            try:
                page.start()
                where = f"{settings.title} listens on {settings.host}:{settings.port}"
                self.log(where + (", dry run: nothing is sent" if settings.dry_run else ""))
                while True:
                    if not self.step():
                        time.sleep(POLL_SECONDS)
            finally:
                page.stop()
                self.receiver.stop()

    def step(self) -> bool:
        """One piece of work; False if there is nothing to do."""
        if self.watcher is not None:
            self.watcher.scan()
        for study in self.queue.complete(self.settings.quiet_seconds):
            self.log(f"{study.key}: complete, {study.images} images")
        if time.monotonic() - self._cleaned > CLEANING_SECONDS:
            self.queue.forget_images(self.settings.keep_days)
            self._cleaned = time.monotonic()
        if not self.settings.dry_run:
            for study in self.queue.studies():
                if study.state == HELD:  # of an earlier dry run
                    self.queue.update(study.key, HELD, state=SEGMENTED)
        for state, work in ((SEGMENTED, self._send), (READY, self._segment)):
            if (waiting := self.queue.next(state)) is not None:
                return work(waiting)
        return False

    def _segment(self, study: ReceivedStudy) -> bool:
        """An attempt is counted before it begins, so that a study that kills the process is not tried for ever."""
        if study.attempts >= MOST_ATTEMPTS:
            reason = study.reason or "the process ended without a reason"
            self.queue.update(study.key, READY, state=FAILED, reason=reason, processed=self.queue.images(study.key))
            self.log(f"{study.key}: failed after {study.attempts} attempts; its images are kept")
            return True
        self.queue.update(study.key, READY, attempts=study.attempts + 1)
        images, place = self.queue.images(study.key), self.queue.place(study.key)
        started = time.monotonic()
        code, reason = run_worker(place, self.settings.model)
        if code == 0:
            files = outgoing(place)
            self.queue.update(
                study.key, READY, state=SEGMENTED, outgoing=files, processed=images, attempts=0, reason=""
            )
            self.log(f"{study.key}: segmented in {time.monotonic() - started:.0f} s, {len(files)} objects to send")
        elif code == REFUSED_CODE:
            self.queue.update(study.key, READY, state=REFUSED, reason=reason, processed=images)
            self.log(f"{study.key}: not segmented; the reason is in its record and on the status page")
        else:
            self.queue.update(study.key, READY, reason=reason or f"the process ended with {code}")
            self.log(f"{study.key}: attempt {study.attempts + 1} of {MOST_ATTEMPTS} failed")
        return True

    def _send(self, study: ReceivedStudy) -> bool:
        settings = self.settings
        if settings.dry_run or settings.send_to is None:
            self.queue.update(study.key, SEGMENTED, state=HELD if settings.send_to else DONE)
            self.log(f"{study.key}: {len(study.outgoing)} objects are ready and were not sent")
            return True
        files = [self.queue.place(study.key) / RESULTS / name for name in study.outgoing]
        try:
            send(settings, files, study.sent, lambda uid: self._accepted(study.key, uid))
            listed = self._check(study.key, files)
        except (FCLSegError, OSError) as error:
            first, longest = settings.retry_seconds
            wait = min(longest, first * 2**study.attempts)
            later = {"attempts": study.attempts + 1, "try_at": time.time() + wait, "reason": str(error)}
            self.queue.update(study.key, SEGMENTED, **later)
            self.log(f"{study.key}: {error}; tried again in {wait:.0f} s")
            return True
        if self.queue.update(study.key, SEGMENTED, state=DONE, attempts=0, reason="", try_at=0.0, listed=listed):
            self.log(f"{study.key}: sent to {settings.send_to.title}{', which lists it' if listed else ''}")
        return True

    def _check(self, key: str, files: Sequence[Path]) -> bool:
        """Whether the archive lists everything. What it has lost is not remembered as sent, so that it goes again."""
        absent = unlisted(self.settings, files) if self.settings.verify else None
        if absent:
            with self.queue.lock:
                study = self.queue.study(key)
                self.queue.save(replace(study, sent=[uid for uid in study.sent if uid not in absent]))
            raise PassingError(f"the archive accepted all objects, but does not list {len(absent)} of {len(files)}")
        return absent is not None

    def _accepted(self, key: str, uid: str) -> None:
        with self.queue.lock:
            study = self.queue.study(key)
            study.sent.append(uid)
            self.queue.save(study)


def inbox(settings: Settings) -> None:
    Service(settings).run()
