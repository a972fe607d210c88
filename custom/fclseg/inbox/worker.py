"""Segments one study in a process of its own, so that a crash or a lack of memory cannot stop the inbox.

``python -m fclseg.inbox.worker STUDY_FOLDER [MODEL]`` ends with 0, or with 3 and a reason in ``reason.txt``.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from fclseg.errors import FCLSegError
from fclseg.files import make_folder, write_text
from fclseg.inbox.queue import IMAGES, RESULTS
from fclseg.locks import held

REFUSED_CODE = 3
REASON, OUTPUT = "reason.txt", "worker.log"
LONGEST_SECONDS = 3600.0
PARENT_SECONDS = 1.0


def run_worker(folder: Path, model: Path | None) -> tuple[int, str]:
    """The exit code and the reason of a refusal."""
    (folder / REASON).unlink(missing_ok=True)
    command = [sys.executable, "-m", "fclseg.inbox.worker", str(folder), *([str(model)] if model else [])]
    with open(folder / OUTPUT, "wb") as output:
        try:
            code = subprocess.run(command, stdout=output, stderr=output, timeout=LONGEST_SECONDS).returncode
        except subprocess.TimeoutExpired:
            return 1, f"it took more than {LONGEST_SECONDS / 60:.0f} minutes"
    reason = (folder / REASON).read_text(encoding="utf-8") if (folder / REASON).is_file() else ""
    return code, reason


def outgoing(folder: Path) -> list[str]:
    """The DICOM results of a study, segmentations first."""
    files = sorted(path.name for path in (folder / RESULTS).glob("*.dcm"))
    return sorted(files, key=lambda name: name.endswith(("_measurements.dcm", "_report.dcm")))


def main(arguments: list[str]) -> int:
    os.umask(0o077)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    folder = Path(arguments[0])
    model = Path(arguments[1]) if len(arguments) > 1 else None
    with held(folder / "worker.lock", "this study", PARENT_SECONDS * 10, "fclseg inbox"):
        return _segment(folder, model)


def _end_with(parent: int) -> None:
    """A worker whose inbox was killed ends, because the next inbox starts another."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def _segment(folder: Path, model: Path | None) -> int:
    from fclseg.inference.exam import SegmentOptions, segment_scan

    shutil.rmtree(folder / RESULTS, ignore_errors=True)  # of an attempt that was killed, or of fewer images
    make_folder(folder / RESULTS)
    try:
        segment_scan(
            folder / IMAGES, folder / RESULTS, SegmentOptions(model=model, pdf=True, cine_only=True, quiet=True)
        )
    except FCLSegError as error:
        if not outgoing(folder):
            write_text(folder / REASON, str(error).replace(f"{folder / IMAGES}", "the study"))
            return REFUSED_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
