"""The start page runs real commands, ends by itself, and its icon starts it."""

import http.client
import json
import shlex
import subprocess
import sys
import threading
import time

import pytest

from fclseg.errors import FCLSegError
from fclseg.local_page import PageServer
from fclseg.start.answers import StartAnswers, commands
from fclseg.start.folders import beside, listing
from fclseg.start.icon import write_icon
from fclseg.start.job import Job
from fclseg.start.serve import PAGE, start

PATIENCE = 600


def until(question):
    end = time.monotonic() + PATIENCE
    while not (found := question()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return found


def test_folders_and_exams_are_listed_and_results_go_beside_them(tmp_path):
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).mkdir()
    for name in ("scan.nii.gz", "exam.ZIP", "notes.txt", ".secret.nii"):
        (tmp_path / name).touch()
    found = listing(tmp_path)
    assert found["folders"] == ["a", "b"] and found["exams"] == ["exam.ZIP", "scan.nii.gz"] and found["files"] == 3
    assert [one["path"] for one in found["parents"]][-2:] == [str(tmp_path.parent), str(tmp_path)]
    with pytest.raises(FCLSegError, match=r"gone: No such file or directory; choose another folder"):
        listing(tmp_path / "gone")
    assert beside(tmp_path / "scan.nii.gz", "results") == tmp_path / "scan_results"
    assert beside(tmp_path / "a", "labels") == tmp_path / "a_labels"


def test_dicom_is_converted_before_it_is_labelled(tmp_path):
    pytest.importorskip("pydicom")
    (tmp_path / "exam").mkdir()
    (tmp_path / "exam" / "IM1").write_bytes(b"\0" * 128 + b"DICM" + b"\0" * 64)
    exam, out = tmp_path / "exam", tmp_path / "out"
    images = str(tmp_path / "exam_images")
    label = ["label", images, "--out", str(out), "--no-browser"]
    assert commands("label", exam, out) == [["data", "import", str(exam), images], label]
    (tmp_path / "exam_images").mkdir()
    assert commands("label", exam, out) == [label], "the images of the last time"
    assert commands("segment", exam, out) == [["segment", str(exam), "--out", str(out), "--pdf"]]


def test_commands_run_one_after_the_other_until_one_fails(tmp_path):
    job = Job()
    job.begin("segment", [["where", "acdc_unet"], ["where", "nowhere"], ["where", "hvsmr_unet"]], tmp_path)
    with pytest.raises(FCLSegError, match="running already"):
        job.begin("segment", [], tmp_path)
    until(lambda: not job.running)
    first, second = job.lines
    assert first.endswith("acdc_unet") and "there is no bundle or job 'nowhere'" in second and job.code == 1


@pytest.fixture
def server(tmp_path):
    ended = threading.Event()
    made = PageServer(PAGE, 0, StartAnswers(Job(), tmp_path, ended.set), tell=lambda text: None)
    made.ended = ended
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield made
    made.answers.job.stop()
    made.shutdown()
    made.server_close()


def ask(server, path, method="GET", content=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=300)
    name, value = server.cookie
    connection.request(method, path, content and json.dumps(content), {"Cookie": f"{name}={value}"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_the_page_lists_begins_stops_and_ends(server, tmp_path):
    (tmp_path / "empty").mkdir()
    assert ask(server, "/api/folder")[1]["folders"] == ["empty"]
    for wrong in ({"what": "attack", "source": "/"}, {"what": "segment", "source": "relative"}):
        assert ask(server, "/api/begin", "POST", wrong)[0] == 400
    assert ask(server, "/api/open", "POST")[1]["error"].startswith("there are no results to open yet")
    status, begun = ask(server, "/api/begin", "POST", {"what": "segment", "source": str(tmp_path / "empty")})
    assert status == 200 and begun["running"] and begun["out"] == str(tmp_path / "empty_results")
    assert ask(server, "/api/stop", "POST")[0] == 200
    until(lambda: not ask(server, "/api/job")[1]["running"])
    assert server.answers.job.code != 0
    assert ask(server, "/api/end", "POST")[0] == 200 and server.ended.is_set()


def test_it_ends_when_its_window_was_closed(tmp_path, capsys):
    start(tmp_path, browser=False, closed_seconds=0.2)
    assert "open http://127.0.0.1:" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="icons are written on Linux")
def test_the_icon_starts_the_program(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setattr("fclseg.start.icon.shutil.which", lambda name: None)
    (tmp_path / "Desktop").mkdir()
    program = tmp_path / 'a "strange" $place'
    program.mkdir()
    (program / "fclseg").write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c \'print("started", *__import__("sys").argv[1:])\' $@\n'
    )
    (program / "fclseg").chmod(0o755)
    written = write_icon(tmp_path, program / "fclseg")
    assert written == [tmp_path / "share" / "applications" / "fclseg.desktop", tmp_path / "Desktop" / "fclseg.desktop"]
    lines = dict(line.split("=", 1) for line in written[1].read_text().splitlines()[1:])
    assert lines["Terminal"] == "false" and written[1].stat().st_mode & 0o100
    command = lines["Exec"].replace("\\\\", "\\")  # the rules of the file, then those of a shell's double quotes
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert run.stdout.strip() == "started start"
