"""``fclseg runs`` and ``fclseg watch``: what they show is what the run folder says, and they change nothing."""

import json
import shutil
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

from fclseg import __version__
from fclseg.cli import main
from fclseg.engine.run_folder import RunFolder
from fclseg.flare.kits import site_pages
from fclseg.flare.kits.kit_check import Result
from fclseg.flare.runs.overview import age, read_run
from fclseg.flare.runs.watch_page import curve, page_server, pages, render
from fclseg.hospital.audit import Audit

SETTINGS = {"job": "fclopt_dp", "preset": "demo", "rounds": 5, "seed": 0}


def _record(number, **sites):
    moved = {site: {"up": {"wire": 10**6}, "down": {"wire": 2 * 10**6}} for site in sites}
    return {"round": number, "loss": 2.0 - number, "sites": sites, "bytes": moved, "seconds": 1.0}


@pytest.fixture
def run(tmp_path):
    """A run of two sites after two rounds; one of them failed in the second."""
    folder = RunFolder(tmp_path / "runs" / "first")
    folder.open({"settings": SETTINGS}, fresh=False)
    folder.admit(["site-1", "site-<2>"])
    good = {"status": "ok", "loss": 1.5, "seconds": 3.25}
    records = [_record(0, **{"site-1": good, "site-<2>": good}), _record(1, **{"site-1": good})]
    records[1]["sites"]["site-<2>"] = {"status": "site-<2> fetched no task"}
    (folder.path / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_the_overview_adds_up(run):
    seen = read_run(run.path)
    assert (seen.state, seen.job, seen.preset, seen.rounds) == ("stopped", "fclopt_dp", "demo", 5)
    assert seen.version == __version__
    first, second = seen.sites
    assert (first.round_number, first.status, first.loss, first.bytes) == (2, "ok", 1.5, 6 * 10**6)
    assert (second.round_number, second.status, second.bytes) == (2, "site-<2> fetched no task", 3 * 10**6)
    assert seen.bytes == 9 * 10**6 and seen.faults == ["round 2: site-<2>: fetched no task"]


def test_the_states_of_a_run(run):
    with run.held():
        assert read_run(run.path).state == "running"
    run.fail("the disk is full")
    assert (read_run(run.path).state, read_run(run.path).reason) == ("failed", "the disk is full")
    (run.path / "result.json").write_text(json.dumps({"encoders": {"": "encoder.safetensors"}}))
    seen = read_run(run.path)
    assert (seen.state, seen.result) == ("complete", run.path / "encoder.safetensors")


def test_the_commands_print_one_line_per_run_and_site(run, capsys):
    assert main(["runs", str(run.path.parent)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("first  stopped  fclopt_dp demo  round 2/5  loss 1.0000  2 sites  9.0 MB  ")
    assert main(["watch", "first", "--runs", str(run.path.parent), "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "  site-1           round 2  loss 1.5000  3.2 s  6.0 MB  ok",
        "  site-<2>         round 2  3.0 MB  site-<2> fetched no task",
    ]
    assert main(["watch", "second", "--runs", str(run.path.parent)]) == 1
    assert "there is no run 'second'" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["config.json", "rounds.jsonl", "result.json", "failure.json"])
@pytest.mark.parametrize("text", ["{", "[]\n", '{"sites": 3, "round": []}\n', "1" * 5000 + "\n"])
def test_a_damaged_run_is_named_and_hides_no_other(run, capsys, file, text):
    damaged = run.path.with_name("second")
    shutil.copytree(run.path, damaged)
    (damaged / file).write_text(text)
    assert main(["runs", str(run.path.parent)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines.keys() == {"first", "second"} and " stopped " in lines["first"]
    if " damaged " in lines["second"]:
        assert str(damaged) in lines["second"]
        assert main(["watch", str(damaged), "--once"]) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1
    else:  # an incomplete last line of a log, as a killed run leaves it
        assert (file, text) == ("rounds.jsonl", "{")


def test_the_page_is_served_on_this_machine_only_and_escapes_names(run):
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    server = page_server(lambda: pages(read_run(run.path)), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://localhost:{server.server_address[1]}/"
    try:
        assert server.server_address[0] == "127.0.0.1"
        with urllib.request.urlopen(address) as answer:
            text = answer.read().decode()
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "site-&lt;2&gt;" in text and "site-<2>" not in text and 'id="sites"' in text
        for request in (
            urllib.request.Request(address, headers={"Host": "evil.example"}),
            urllib.request.Request(address + "../config.json"),
            urllib.request.Request(address, data=b"x", method="POST"),
        ):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(request)
    finally:
        server.shutdown()
        server.server_close()
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_health_and_metrics_are_for_this_machine_and_say_what_the_folder_says(run):
    server = page_server(lambda: pages(read_run(run.path)), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://localhost:{server.server_address[1]}"
    try:
        with pytest.raises(urllib.error.HTTPError) as stopped:  # nobody works on the run
            urllib.request.urlopen(f"{address}/health", timeout=600)
        assert stopped.value.code == 503 and stopped.value.read() == b"stopped\n"
        with run.held():
            assert urllib.request.urlopen(f"{address}/health", timeout=600).read() == b"running\n"
        said = urllib.request.urlopen(f"{address}/metrics", timeout=600).read().decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in said)
        assert values['fclseg_run_rounds_done{run="first"}'] == "2" and values['fclseg_run_rounds{run="first"}'] == "5"
        assert values['fclseg_run_loss{run="first"}'] == "1.0"
        assert values['fclseg_site_ok{run="first",site="site-1"}'] == "1"
        assert values['fclseg_site_ok{run="first",site="site-<2>"}'] == "0"
        foreign = urllib.request.Request(f"{address}/metrics", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(foreign, timeout=600)
    finally:
        server.shutdown()


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({"encoders": {"": "encoder.safetensors"}}, "--encoder {}/encoder.safetensors"),
        ({"encoders": {"": "encoder.safetensors"}, "model": "model.safetensors"}, "--network {}/model.safetensors"),
    ],
)
def test_the_list_of_runs_names_the_file_that_the_next_step_needs(run, capsys, made, expected):
    (run.path / "result.json").write_text(json.dumps(made))
    assert main(["runs", str(run.path.parent)]) == 0
    assert expected.format(run.path) in capsys.readouterr().out


def test_a_curve_spans_the_picture_and_marks_rounds_with_a_fault():
    shown = curve("Loss", [3.0, 1.0, 2.0], [False, True, False])
    assert 'points="60.0,14.0 238.0,230.0 416.0,122.0"' in shown
    faults = shown.partition('<g class="c1">')[2].partition("</g>")[0]
    assert faults == '<circle class="dot" cx="238.0" cy="230.0" r="3"/>'
    assert "Loss, now 2" in shown and ">3</text>" in shown and ">1</text>" in shown and ">round</text>" in shown
    assert curve("Loss", [], []) == "<p>no round has finished yet</p>"
    assert "<polyline" in curve("Loss", [4.0], [False])


def test_a_page_before_the_first_round(tmp_path):
    folder = RunFolder(tmp_path / "new")
    folder.open({"settings": SETTINGS}, fresh=False)
    (folder.path / "rounds.jsonl").touch()
    assert "<dd>0 of 5</dd>" in render(read_run(folder.path)) and "<li>none</li>" in render(read_run(folder.path))


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (120, "2 min"), (7300, "2 h"), (200000, "2 d")])
def test_ages(seconds, text):
    assert age(seconds) == text


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None, reason="needs a browser")
def test_a_real_browser_shows_the_page(run, tmp_path):
    server = page_server(lambda: pages(read_run(run.path)), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://localhost:{server.server_address[1]}/"
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    try:
        shown = subprocess.run([BROWSER, *options, address], capture_output=True, text=True).stdout
    finally:
        server.shutdown()
        server.server_close()
    assert "<title>Run first</title>" in shown and shown.count("<polyline") == 2
    assert shown.count("fetched no task") == 2  # in the table and among the faults


def test_a_site_tells_its_faults_and_what_left(tmp_path, monkeypatch):
    monkeypatch.setattr(
        site_pages, "check_kit", lambda kit: iter([Result("disk", fault="it is full"), Result("key", "ok")])
    )
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "fclseg.json").write_text("{}")
    for outcome in ("sent", "sent", "refused"):
        Audit(tmp_path / "runs").note(outcome=outcome, run='a "b"')
    server = page_server(site_pages.site_pages(tmp_path), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://localhost:{server.server_address[1]}"
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"{address}/health", timeout=600)
        assert (error.value.code, error.value.read()) == (503, b"disk: it is full\n")
        said = urllib.request.urlopen(f"{address}/metrics", timeout=600).read().decode().splitlines()
    finally:
        server.shutdown()
        server.server_close()
    assert said[:3] == [
        "fclseg_site_faults 1",
        'fclseg_site_sent_total{run="a \\"b\\""} 2',
        'fclseg_site_refused_total{run="a \\"b\\""} 1',
    ]
    name, _, seconds = said[3].rpartition(" ")
    assert name == 'fclseg_site_seconds_since_result{run="a \\"b\\""}' and 0 <= float(seconds) < 10**5
