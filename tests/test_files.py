"""Files are either complete or absent."""

import os
from pathlib import Path

import pytest

from fclseg.errors import DataError
from fclseg.files import append_line, make_folder, whole_file, write_text


def test_a_failed_write_keeps_the_old_file_and_leaves_no_draft(tmp_path):
    path = tmp_path / "new" / "table.csv"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as draft:
        draft.write_text("half")
        assert draft.suffix == ".csv" and path.read_text() == "old"
        _ = 1 / 0
    assert path.read_text() == "old" and list(path.parent.iterdir()) == [path]
    write_text(path, "new")
    assert path.read_text() == "new" and list(path.parent.iterdir()) == [path]


def test_a_file_is_on_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    happened = []

    def fsync(descriptor):
        happened.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{descriptor}'))}")

    def replace(draft, path, replace=os.replace):
        happened.append(f"move {os.path.basename(path)}")
        replace(draft, path)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_text(tmp_path / "table.csv", "text\n")
    assert happened == [f"sync .{os.getpid()}.table.csv", "move table.csv", f"sync {tmp_path.name}"]
    append_line(tmp_path / "table.csv", "and more")
    assert happened[3:] == ["sync table.csv"] and (tmp_path / "table.csv").read_text() == "text\nand more\n"


@pytest.mark.parametrize("torn", ["", "one\n", "one\ntw", 'one\n{"patient": "M\u00fc', "tw"])
def test_a_line_after_one_that_a_crash_cut_short_can_be_read(tmp_path, torn):
    path = tmp_path / "journal"
    path.write_text(torn)
    for line in ("a", "b"):
        append_line(path, line)
    assert path.read_text() == ("one\n" if "\n" in torn else "") + "a\nb\n"


def test_a_full_disk_is_one_sentence():
    with pytest.raises(DataError, match=r"/dev/full cannot be written \(No space left on device\): free space"):
        append_line(Path("/dev/full"), "line")


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/table.csv cannot be written \(.+\): free space or choose another"):
        write_text(tmp_path / "file" / "table.csv", "text")
    with pytest.raises(DataError, match="cannot be written to"):
        make_folder(tmp_path / "file" / "folder")


def test_an_existing_folder_where_nothing_can_be_written_is_refused(open_folder, ordinary_user):
    open_folder.chmod(0o555)
    with ordinary_user(), pytest.raises(DataError, match=r"cannot be written to \(Permission denied\): choose another"):
        make_folder(open_folder)
