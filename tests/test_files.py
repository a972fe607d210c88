"""Files are either complete or absent."""

import os

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
    write_text(tmp_path / "table.csv", "text")
    assert happened == [f"sync .{os.getpid()}.table.csv", "move table.csv", f"sync {tmp_path.name}"]
    append_line(tmp_path / "table.csv", " and more")
    assert happened[3:] == ["sync table.csv"] and (tmp_path / "table.csv").read_text() == "text and more\n"


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
