"""NVFlare's own commands as users type them, with its own kits and with ours: the committed job completes."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NVFLARE = Path(sys.executable).with_name("nvflare")
SECONDS = 1800

pytestmark = pytest.mark.nightly


@pytest.fixture(params=[("-n", "2"), ("-i", "poc/project.yml")], ids=["its-kits", "our-kits"])
def typed(request, tmp_path, only_poc):
    """Types commands in the project's folder, with a home and a workspace of their own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FCLSEG_")}
    environment |= {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{NVFLARE.parent}{os.pathsep}{os.environ['PATH']}",
        "FCLSEG_CACHE": str(tmp_path / "cache"),
    }
    (tmp_path / "home").mkdir()

    def run(*arguments):
        command = [NVFLARE, "--connect-timeout", str(SECONDS), *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    assert run("poc", "prepare", *request.param)[0] == 0
    # Without --no-wait, it connects for one second at a time and can stand still on a loaded machine.
    assert run("poc", "start", "--no-wait")[0] == 0
    run.workspace, run.ours = only_poc, request.param[0] == "-i"
    deadline = time.monotonic() + SECONDS
    while not {"site-1", "site-2"} <= joined(only_poc):
        assert time.monotonic() < deadline
        time.sleep(1)
    yield run
    run("poc", "stop")


def joined(workspace):
    logs = [path.read_text(errors="replace") for path in workspace.glob("*/prod_00/*/log.txt")]
    return {name for log in logs for name in re.findall(r"New client (\S+?)@", log)}


def status(typed, job_id):
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        code, said = typed("job", "meta", job_id, "--format", "json")
        found = json.loads(said[said.index("{") :])["data"]["status"] if not code else ""
        if found.startswith("FINISHED"):
            return found
        time.sleep(3)
    return "it did not end"


def test_the_committed_job_completes_as_typed(typed, tmp_path):
    code, said = typed("job", "submit", "-j", "jobs/fclopt_dp")
    assert code == 0, said
    job_id = said.rpartition("job_id:")[2].split()[0]
    assert status(typed, job_id) == "FINISHED:COMPLETED"
    (encoder,) = typed.workspace.rglob("runs/*/encoder.safetensors")
    records = [json.loads(line) for line in (encoder.parent / "rounds.jsonl").read_text().splitlines()]
    assert {(site, report["status"]) for record in records for site, report in record["sites"].items()} == {
        ("site-1", "ok"),
        ("site-2", "ok"),
    }
    for site in ("site-1", "site-2"):
        log = "".join(path.read_text(errors="replace") for path in typed.workspace.rglob(f"{site}/{job_id}/log.txt"))
        assert "this site trains on generated images (phantoms)" in log
        assert ("its log files go to the server, which is harmless here" in log) != typed.ours
    if typed.ours:
        evil = tmp_path / "evil" / "fclopt_dp"
        shutil.copytree(ROOT / "jobs" / "fclopt_dp", evil)
        (evil / "app" / "custom" / "evil.py").write_text("x")
        code, said = typed("job", "submit", "-j", str(evil))
        assert code and "the job brings code (custom/evil.py), which this federation does not run" in said
