"""The script that runs a job with real processes. The nightly tests run all of it."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fclseg.engine.place import LOCAL_FILE, read_site_file
from fclseg.errors import FCLSegError
from fclseg.flare.classes import SERVER_CLASSES, SITE_CLASSES

POC = Path(__file__).parents[2] / "poc"
SERVER = "localhost"


@pytest.fixture
def poc(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(POC)
    return importlib.import_module("run")


def test_kits_come_out_closed(poc, tmp_path):
    """The kits that `nvflare provision` makes of the template: exact class list, no code, no shell, no logs."""
    federation = poc.Federation(tmp_path)
    federation.provision()
    for party, classes in ((SERVER, SERVER_CLASSES), *((site, SITE_CLASSES) for site in poc.SITES)):
        local = federation.kit(party) / "local"
        resources = json.loads((local / "resources.json.default").read_text())
        assert resources["class_allow_list"] == list(classes)
        assert resources["class_list_enforcement_mode"] == "enforce" and resources["allow_log_streaming"] is False
        assert "log_streamer" not in json.dumps(resources["components"])
        permissions = json.loads((local / "authorization.json.default").read_text())["permissions"]
        assert {role: rights["byoc"] for role, rights in permissions.items()} == dict.fromkeys(permissions, "none")
        assert {rights["shell_commands"] for rights in permissions.values()} == {"none"}
        streaming = json.loads((local / "comm_config.json").read_text())
        seconds_under_way = streaming["streaming_window_size"] * 8 / 0.6e6  # the slowest link of the kits
        assert seconds_under_way < streaming["streaming_retry_wait"]
    for site in poc.SITES:
        assert "policy" in read_site_file(federation.kit(site) / LOCAL_FILE)
    store = json.loads((federation.kit(SERVER) / "local" / "resources.json.default").read_text())
    assert "/tmp/nvflare" not in json.dumps(store)
    keys = list(tmp_path.rglob("*.key"))
    assert len(keys) == 5 and not any(path.stat().st_mode & 0o077 for path in keys)
    assert (tmp_path / "kits" / "fclseg").stat().st_mode & 0o077 == 0  # with the project's own key


@pytest.mark.nightly
def test_server_and_two_sites_as_processes(tmp_path):
    command = [sys.executable, str(POC / "run.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "0 missing, 0 unexpected" in done.stdout
    records = [json.loads(line) for line in next(tmp_path.rglob("download/**/rounds.jsonl")).read_text().splitlines()]
    assert [sorted(record["sites"]) for record in records] == [["site-1", "site-2"]] * 2
    for site in ("site-1", "site-2"):  # each site kept its memory in its own place
        assert list((tmp_path / "kits").rglob(f"{site}/runs/*/sites/{site}/round-0001.safetensors"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--data", "site-1=/nowhere"], "/nowhere of site-1 does not exist"),
        (["--data", "elsewhere=/tmp"], "is not a site"),
        (["--job", "nothing"], "no job 'nothing'"),
    ],
)
def test_no_phantom_stands_in_for_a_hospital(poc, tmp_path, monkeypatch, capsys, arguments, complaint):
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(tmp_path / "out"), *arguments])
    assert poc.main() == 1 and complaint in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


class Recorder:
    """Stands for the parties and records what is asked of them."""

    def __init__(self, out, fails_at=""):
        self.out, self.fails_at, self.calls = out, fails_at, []

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls.append(name)
            if name == self.fails_at:
                raise FCLSegError("the server did not come up")

        return call


def test_what_did_not_start_whole_is_stopped(poc, tmp_path, monkeypatch, capsys):
    parties = Recorder(tmp_path, fails_at="start_all")
    monkeypatch.setattr(poc, "Federation", lambda out: parties)
    monkeypatch.setattr(poc, "prepare", lambda *arguments: None)
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(tmp_path / "out")])
    assert poc.main() == 1 and "the server did not come up" in capsys.readouterr().err
    assert parties.calls == ["start_all", "stop"]
