"""Many exams: one line each, bad ones do not stop the others, and the same command continues."""

import csv
import json
import zipfile

import nibabel as nib
import numpy as np
import pytest

from fclseg.errors import DataError
from fclseg.inference import batch
from fclseg.inference.batch import find_exams, run_batch
from fclseg.inference.exam import SegmentOptions, unpacked


@pytest.fixture
def exams(tmp_path):
    """A NIfTI file, the same one in a zip archive and in a folder, and a folder without images."""
    voxels = np.random.default_rng(0).integers(0, 200, (48, 48, 2)).astype(np.int16)
    folder = tmp_path / "exams"
    (folder / "c_folder").mkdir(parents=True)
    for path in (folder / "a.nii.gz", folder / "c_folder" / "scan.nii.gz"):
        nib.save(nib.Nifti1Image(voxels, np.diag([-3.0, -3.0, 10.0, 1.0])), path)
    with zipfile.ZipFile(folder / "b.zip", "w") as archive:
        archive.write(folder / "a.nii.gz", "inner/scan.nii.gz")
    (folder / "d_empty").mkdir()
    (folder / "d_empty" / "notes.txt").write_text("no image")
    (folder / "readme.txt").write_text("not an exam")
    return folder


def test_every_exam_has_a_line_and_only_new_ones_are_opened_again(exams, tmp_path, capsys, monkeypatch):
    assert [path.name for path in find_exams(exams)] == ["a.nii.gz", "b.zip", "c_folder", "d_empty"]
    rows = run_batch(exams, tmp_path / "out", SegmentOptions())
    assert [row["patients"] for row in rows] == [1, 1, 1, 0] and "contains no NIfTI image" in rows[3]["reason"]
    out = capsys.readouterr().out
    assert [f"[{number}/4]" in out for number in (1, 2, 3, 4)] == [True] * 4
    labels = [nib.load(path).get_fdata() for path in sorted((tmp_path / "out").rglob("*_seg.nii.gz"))]
    assert len(labels) == 3 and all(np.array_equal(labels[0], one) for one in labels)
    assert not list((tmp_path / "out").rglob(".unpacked")), "nothing of the archive is left"
    with open(tmp_path / "out" / "exams.csv", encoding="utf-8") as file:
        assert [row["exam"] for row in csv.DictReader(file)] == [row["exam"] for row in rows]
    opened = []
    monkeypatch.setattr(batch, "segment_scan", lambda exam, *_: opened.append(exam.name) or [])
    (exams / "d_empty" / "notes.txt").write_text("changed")
    assert run_batch(exams, tmp_path / "out", SegmentOptions())[:3] == rows[:3] and opened == ["d_empty"]


def test_an_interrupted_batch_keeps_what_is_done(exams, tmp_path, monkeypatch):
    calls = []

    def stop(exam, *_):
        calls.append(exam.name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(batch, "segment_scan", stop)
    with pytest.raises(KeyboardInterrupt):
        run_batch(exams, tmp_path / "out", SegmentOptions())
    assert [json.loads(line)["exam"] for line in open(tmp_path / "out" / "exams.jsonl")] == ["a.nii.gz"]  # noqa: SIM115
    run_batch(exams, tmp_path / "out", SegmentOptions())
    assert calls == ["a.nii.gz", "b.zip", "b.zip", "c_folder", "d_empty"]


def test_a_damaged_archive_and_a_wrong_folder_are_named(tmp_path):
    (tmp_path / "torn.zip").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match=r"torn\.zip: cannot be unpacked"), unpacked(tmp_path / "torn.zip", tmp_path):
        pass
    with pytest.raises(DataError, match="inside the folder of exams"):
        run_batch(tmp_path, tmp_path / "out", SegmentOptions())
