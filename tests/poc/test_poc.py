"""The script that takes a job through real processes; the whole of it runs in the nightly tests."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fclseg.errors import FCLSegError

POC = Path(__file__).parents[2] / "poc"


@pytest.fixture
def poc(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(POC)
    return importlib.import_module("run")


def test_an_administrator_allows_the_package_and_nothing_else(poc, tmp_path):
    (tmp_path / "local").mkdir()
    default = {"class_allow_list": ["nvflare.app_common.x.Y"], "components": []}
    (tmp_path / "local" / "resources.json.default").write_text(json.dumps(default))
    poc.allow_package(tmp_path)
    resources = json.loads((tmp_path / "local" / "resources.json").read_text())
    assert resources == {"class_allow_list": ["nvflare.app_common.x.Y", "fclseg."], "components": []}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_server_and_two_sites_as_processes(tmp_path):
    command = [sys.executable, str(POC / "run.py"), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stderr
    assert "0 missing, 0 unexpected" in done.stdout
    records = [json.loads(line) for line in next(tmp_path.rglob("download/**/rounds.jsonl")).read_text().splitlines()]
    assert [sorted(record["sites"]) for record in records] == [["site-1", "site-2"]] * 2
    for site in ("site-1", "site-2"):  # each site kept its memory in its own place
        assert list((tmp_path / "workspace").rglob(f"{site}/runs/*/sites/{site}/round-0001.safetensors"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--data", "site-1=/nowhere"], "/nowhere of site-1 does not exist"),
        (["--data", "elsewhere=/tmp"], "names no site"),
        (["--job", "nothing"], "no job 'nothing'"),
    ],
)
def test_no_phantom_stands_in_for_a_hospital(poc, tmp_path, monkeypatch, capsys, arguments, complaint):
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(tmp_path / "out"), *arguments])
    assert poc.main() == 1 and complaint in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_earlier_download_is_not_taken_for_this_job(poc, tmp_path, monkeypatch):
    def nvflare(self, *arguments, timeout=0):
        if arguments[1] == "download":
            path = tmp_path / "download" / arguments[2] / "workspace" / "fclseg" / "encoder.safetensors"
            path.parent.mkdir(parents=True)
            path.touch()
        return json.dumps({"data": {"job_id": self.job_id}})

    monkeypatch.setattr(poc.Poc, "nvflare", nvflare)
    party = poc.Poc(tmp_path)
    for party.job_id in ("bbb", "aaa", "ccc"):  # sorted by name, "aaa" would win
        found = poc.run_job(party, tmp_path / "job", tmp_path, timeout=1)
        assert found.relative_to(tmp_path / "download").parts[0] == party.job_id


def test_what_did_not_start_whole_is_stopped(poc, tmp_path, monkeypatch, capsys):
    calls = []

    def nvflare(self, *arguments, timeout=0):
        calls.append(arguments[1])
        if arguments[1] == "start":
            raise FCLSegError("the server did not come up")

    monkeypatch.setattr(poc.Poc, "nvflare", nvflare)
    monkeypatch.setattr(poc, "prepare", lambda *arguments: None)
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(tmp_path / "out")])
    assert poc.main() == 1 and "the server did not come up" in capsys.readouterr().err
    assert calls == ["start", "stop"]
