"""The process that segments one study: it ends with its inbox, and a refusal is a sentence without paths."""

import os
import subprocess
import sys
import time

import pytest

pytest.importorskip("pydicom"), pytest.importorskip("highdicom"), pytest.importorskip("pynetdicom")

from fclseg.inbox.worker import REASON, REFUSED_CODE, _segment, outgoing  # noqa: E402


def test_a_study_without_images_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "notes.dcm").write_text("no image")
    assert _segment(tmp_path, None) == REFUSED_CODE
    assert (tmp_path / REASON).read_text() == "the study: contains no NIfTI image; give a folder of images"


def test_segmentations_are_sent_before_what_describes_them(tmp_path):
    (tmp_path / "results").mkdir()
    for name in ("patient001_measurements.dcm", "patient001_ED.dcm", "patient001_report.dcm", "patient001_frame02.dcm"):
        (tmp_path / "results" / name).touch()
    assert [name.split("_")[1] for name in outgoing(tmp_path)] == [
        "ED.dcm", "frame02.dcm", "measurements.dcm", "report.dcm",
    ]  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="parents of processes are known on POSIX systems only")
def test_a_worker_ends_when_its_inbox_is_killed(tmp_path):
    child = (
        "import os; from fclseg.inbox.worker import _end_with; parent = os.getppid(); print(os.getpid(), flush=True)"
    )
    child += "; _end_with(parent)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    number = int(process.stdout.readline())
    process.kill()
    process.wait()
    for _ in range(6000):
        if not os.path.exists(f"/proc/{number}"):
            return
        time.sleep(0.1)
    raise AssertionError("the worker outlived its inbox")
