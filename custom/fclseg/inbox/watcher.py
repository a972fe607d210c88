"""A watched folder: DICOM files that are copied there are taken like received ones. They stay where they are."""

import time
from pathlib import Path

from fclseg.dicom.frames import MR_IMAGES, pydicom
from fclseg.dicom.read import files_of, is_dicom
from fclseg.errors import DataError
from fclseg.inbox.log import Log
from fclseg.inbox.queue import Queue

SETTLED_SECONDS = 3.0
"""A file that changed more recently may still be copied."""


class Watcher:
    def __init__(self, folder: Path, queue: Queue, log: Log, settled_seconds: float = SETTLED_SECONDS):
        self.folder, self.queue, self.log, self.settled = folder, queue, log, settled_seconds
        self._known: dict[Path, tuple[int, int]] = {}

    def scan(self) -> int:
        """Take all files that are new or changed and settled; returns how many."""
        taken = 0
        for path in files_of(self.folder):
            try:
                status = path.stat()
                mark = (status.st_size, status.st_mtime_ns)
                if self._known.get(path) == mark or time.time() - status.st_mtime < self.settled:
                    continue
                taken += self._take(path)
                self._known[path] = mark
            except (DataError, OSError):
                self.log("a file of the watched folder could not be stored; it is tried again")
        return taken

    def _take(self, path: Path) -> bool:
        if not is_dicom(path):
            return False
        try:
            header = pydicom().dcmread(path, stop_before_pixels=True, force=True)
            study, image = str(header.StudyInstanceUID), str(header.SOPInstanceUID)
            kind = str(header.SOPClassUID)
        except Exception:  # a damaged file
            self.log("a damaged file of the watched folder was left out")
            return False
        if kind not in MR_IMAGES:
            return False
        self.queue.add(study, image, path.read_bytes())
        return True
