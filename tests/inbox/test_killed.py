"""The real inbox, with the real segmentation, is killed at every step of one study. The archive must get what
``fclseg segment`` makes of the same images, every object once but the one whose answer was lost."""

import json
import signal
from pathlib import Path

import pytest

pydicom, highdicom = pytest.importorskip("pydicom"), pytest.importorskip("highdicom")
pynetdicom = pytest.importorskip("pynetdicom", reason="the extra inbox is not installed")

from inbox_parties import WAIT_SECONDS, Archive, free_ports, start_inbox, until, write_exam  # noqa: E402

from fclseg.cli import main  # noqa: E402

pytestmark = pytest.mark.nightly
KILLED_AT = 2
"""The object whose storing kills the inbox."""


class Party:
    """The inbox as one process after the other on the same folder."""

    def __init__(self, folder, archive):
        self.folder, self.archive, self.process = folder, archive, None
        (self.port,) = free_ports(1)

    def start(self):
        self.process = start_inbox(self.folder, self.port, f"ARCHIVE@127.0.0.1:{self.archive.port}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT_SECONDS)

    def again(self):
        self.kill()
        self.start()

    def record(self):
        path = next((self.folder / "queue" / "studies").glob("*/record.json"), None)
        return json.loads(path.read_text()) if path else {"state": "", "sent": []}

    def reaches(self, state):
        until(lambda: True if self.record()["state"] == state else None, f"it is {state}: {self.record()}")

    def store(self, files):
        """Send images; returns how many were accepted before the inbox was gone."""
        entity = pynetdicom.AE("TEST")
        entity.add_requested_context("1.2.840.10008.5.1.4.1.1.4")
        peer = until(lambda: self._associated(entity), "the inbox answers")
        answers = [peer.send_c_store(pydicom.dcmread(path)) for path in files]
        peer.release()
        return sum(getattr(one, "Status", 1) == 0 for one in answers)

    def _associated(self, entity):
        peer = entity.associate("127.0.0.1", self.port, ae_title="FCLSEG")
        return peer if peer.is_established else None


def test_killed_at_every_step_the_archive_gets_what_segment_makes(tmp_path, capsys):
    exam = write_exam(tmp_path)
    files = sorted(path for path in exam.rglob("*") if path.is_file())
    archive = Archive(free_ports(1)[0])
    archive.lists = True
    inbox = Party(tmp_path, archive)
    inbox.start()
    try:
        assert inbox.store(files[:7]) == 7
        inbox.again()  # 1. while it receives
        assert inbox.store(files) == len(files)
        until(lambda: next((tmp_path / "queue").glob("studies/*/results/*_seg.nii.gz"), None), "it segments")
        inbox.again()  # 2. while it segments
        inbox.reaches("segmented")
        inbox.again()  # 3. with results that the archive, which is down, could not get
        stored, asked = archive.store, archive.find

        def store_and_kill(event):
            answer = stored(event)
            if len(archive.got) == KILLED_AT:
                inbox.kill()  # 4. the archive has the object, the inbox does not know
            return answer

        def kill_when_asked(event):
            inbox.kill()  # 5. the archive has everything, the inbox wants to be sure
            yield from asked(event)

        archive.store = store_and_kill
        archive.start()
        until(lambda: True if inbox.process.poll() is not None else None, "killed while sending")
        archive.stop()
        archive.store, archive.find = stored, kill_when_asked
        archive.start()
        inbox.start()
        until(lambda: True if inbox.process.poll() is not None else None, "killed while asking")
        assert inbox.record()["state"] == "segmented"
        archive.stop()
        archive.find = asked
        archive.start()
        inbox.start()
        inbox.reaches("done")
        assert inbox.record()["listed"]
        inbox.again()
        assert inbox.store(files) == len(files)  # the whole exam once more
    finally:
        inbox.kill()
        archive.stop()
    assert inbox.record()["state"] == "done"
    assert main(["segment", str(exam), "--out", str(tmp_path / "expected"), "--pdf"]) == 0
    expected = {str(pydicom.dcmread(path).SOPInstanceUID) for path in Path(tmp_path / "expected").glob("*.dcm")}
    assert set(archive.got) == expected and len(expected) == 5, "3 phases, measurements and report"
    assert sorted(archive.got.values()) == [1] * 4 + [2]
