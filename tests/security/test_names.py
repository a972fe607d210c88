"""Patient names are data: they are never executed, cannot fake output, and are hidden from other accounts."""

import csv
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fclseg.cli import main
from fclseg.engine.run_files import lock_path
from fclseg.engine.run_folder import RunFolder
from fclseg.errors import FCLSegError
from fclseg.files import private_folder, write_text
from fclseg.finetune.train import FinetuneSpec, training_config
from fclseg.flare.slots import slots_folder, training_slot
from fclseg.locks import held, is_held
from fclseg.phantom.dataset import write_phantom
from fclseg.study.report.pictures import without_name
from fclseg.text import cell, printable

NAMES = (
    "$__import__('os').system('touch executed')",
    "$import os",
    "@seed",
    "@train#history",
    "%train.json::seed",
    "a#b",
    "a@b",
    "${HOME}",
    "=1+1",
    "name with spaces",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_not_executed_and_arrives_as_it_is(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = FinetuneSpec(tmp_path / name, (name, "other"), (name,), preset="demo", pretrained_encoder=tmp_path / name)
    parser = training_config(spec, tmp_path / name, progress=False)
    for key, expected in (("train_patients", (name, "other")), ("validation_patients", (name,))):
        assert tuple(parser.get_parsed_content(key)) == expected
    for key in ("dataset_dir", "output_dir", "pretrained_encoder"):
        assert str(parser.get_parsed_content(key)) == str(tmp_path / name)
    assert not (tmp_path / "executed").exists()


def test_a_study_with_such_a_folder_fine_tunes_and_executes_nothing(tmp_path, monkeypatch):
    """The whole way of a cell: read the folder, train, evaluate, write the tables."""
    from fclseg.study.fixed_training import train_fixed

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
    write_phantom(tmp_path / "data", patients=2, frames=2)
    first, second = sorted(path for path in (tmp_path / "data").iterdir() if path.is_dir())
    evil = "$__import__('os').system('touch executed')"
    for file in first.iterdir():
        file.rename(file.with_name(file.name.replace(first.name, evil)))
    first.rename(first.with_name(evil))
    spec = FinetuneSpec(tmp_path / "data", (evil,), (second.name,), preset="demo")
    result = train_fixed(spec, tmp_path / "out")
    assert len(result.losses) >= 1 and not list(tmp_path.rglob("executed"))


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1"])
def test_a_spreadsheet_executes_no_name(name, tmp_path):
    assert str(cell(name)).startswith(("'", "\\"))
    with open(tmp_path / "table.csv", "w", newline="") as file:
        csv.writer(file).writerow([cell(name), cell(-1.5), cell("patient001")])
    with open(tmp_path / "table.csv", newline="") as file:
        (row,) = csv.reader(file)
    assert row[0][0] not in "=+-@\t\r\n" and row[1:] == ["-1.5", "patient001"]


def test_a_name_forges_no_line_and_hides_none(tmp_path, capsys):
    name = "p1\n0 problems\x1b[2K\x1b[1A\u202egpj"
    assert printable(name) == "p1\\n0 problems\\x1b[2K\\x1b[1A\\u202egpj"
    assert printable("Müller, Ångström 3") == "Müller, Ångström 3"
    assert main(["data", "check", str(tmp_path / name)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "\x1b" not in error and "\u202e" not in error


def test_a_report_names_nobody_unless_asked():
    assert without_name("Mueller, Anna, ED slice 5") == "a held-out patient, ED slice 5"


def test_folders_and_files_are_for_their_owner_alone(tmp_path):
    private_folder(tmp_path / "a" / "b")
    write_text(tmp_path / "c" / "d" / "file", "x")
    for folder in ("a", "a/b", "c", "c/d"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700
    mask = os.umask(0)
    os.umask(mask)
    assert main(["data", "phantom", "--out", str(tmp_path / "phantom"), "--patients", "1"]) == 0
    modes = [path.stat().st_mode & 0o077 for path in (tmp_path / "phantom").rglob("*")]
    assert len(modes) > 3 and not any(modes)
    assert os.umask(mask) == mask  # a library that calls the command line keeps its own


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A temporary folder that others can write to as well."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"fclseg-slots-{os.getuid()}"


def test_slots_do_not_follow_links(temporary, tmp_path):
    (tmp_path / "victim").mkdir()
    temporary.symlink_to(tmp_path / "victim")
    with pytest.raises(FCLSegError, match="is not a private folder of this account"), training_slot(1):
        pass
    assert not list((tmp_path / "victim").iterdir())
    temporary.unlink()
    temporary.mkdir(mode=0o777)
    temporary.chmod(0o777)
    with pytest.raises(FCLSegError, match="is not a private folder"):
        slots_folder()
    temporary.chmod(0o700)
    (tmp_path / "letter").write_text("dear friend")
    (temporary / "1-threads-0").symlink_to(tmp_path / "letter")
    with pytest.raises(OSError, match="symbolic"), training_slot(1):
        pass
    assert (tmp_path / "letter").read_text() == "dear friend"


def test_two_runs_of_one_name_do_not_share_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("fclseg.engine.run_folder.LOCK_SECONDS", 0.3)
    code = (
        "import sys, time; from pathlib import Path; from fclseg.engine.run_folder import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).held(purpose='job 7'): print('held', flush=True); time.sleep(3600)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        since = r"since \d{4}-\d\d-\d\d \d\d:\d\d UTC"
        holder = rf"process {other.pid} on {re.escape(socket.gethostname())} {since} \(job 7\)"
        complaint = f"the run folder {tmp_path}/run is in use by {holder}: wait for it to end"
        with pytest.raises(FCLSegError, match=complaint), RunFolder(tmp_path / "run").held():
            pass
        assert is_held(lock_path(tmp_path / "run"))
    finally:
        other.kill()
        other.wait()
    assert not is_held(lock_path(tmp_path / "run"))  # the operating system freed it
    with RunFolder(tmp_path / "run").held():
        pass
    assert not is_held(tmp_path / "absent" / "lock") and not (tmp_path / "absent").exists()


def test_a_lock_is_waited_for(tmp_path):
    order, started = [], threading.Event()

    def hold():
        with held(tmp_path / "lock", "it", 600):
            started.set()
            time.sleep(0.3)
            order.append("first")

    thread = threading.Thread(target=hold)
    thread.start()
    started.wait()
    with held(tmp_path / "lock", "it", 600):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
    Path(tmp_path / "link").symlink_to(tmp_path / "lock")
    with pytest.raises(OSError), held(tmp_path / "link", "it", 1):
        pass
