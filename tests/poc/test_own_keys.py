"""A hospital makes its own private key; the coordinator signs a request and never sees it."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fclseg.engine.place import LOCAL_FILE, read_site_file
from fclseg.flare.classes import SITE_CLASSES
from fclseg.hospital.policy import Policy

POC = Path(__file__).parents[2] / "poc"
NVFLARE = Path(sys.executable).with_name("nvflare")


@pytest.mark.nightly
def test_the_key_stays_at_the_hospital_and_the_kit_is_ours(tmp_path):
    coordinator, hospital = tmp_path / "coordinator", tmp_path / "hospital"

    def nvflare(folder, *arguments):
        folder.mkdir(exist_ok=True)
        environment = {**os.environ, "HOME": str(tmp_path / "home")}
        done = subprocess.run(
            [NVFLARE, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (tmp_path / "home").mkdir()
    nvflare(coordinator, "cert", "init", "--profile", POC / "profile.yml", "-o", "ca", "--org", "coordinator")
    nvflare(hospital, "cert", "request", "-p", POC / "hospital.yml")
    request = hospital / "site-1" / "site-1.request.zip"
    told = nvflare(
        coordinator,
        "cert",
        "approve",
        request,
        "-c",
        "ca",
        "--profile",
        POC / "profile.yml",
        "--out",
        "site-1.signed.zip",
    )
    fingerprint = next(line.split(": ", 1)[1] for line in told.splitlines() if line.startswith("rootca_fingerprint"))
    signed = coordinator / "site-1.signed.zip"
    nvflare(hospital, "package", signed, "--request-dir", "site-1", "--fingerprint", fingerprint.strip())

    (key,) = hospital.glob("site-1/*.key")
    secret = key.read_bytes()
    for archive in (request, signed):
        with zipfile.ZipFile(archive) as content:
            assert all(secret not in content.read(name) for name in content.namelist())
    assert [path.name for path in coordinator.rglob("*.key")] == ["rootCA.key"]
    (kit,) = hospital.glob("workspace/fclseg/prod_00/site-1")
    assert (kit / "startup" / "client.key").stat().st_mode & 0o077 == 0
    resources = json.loads((kit / "local" / "resources.json.default").read_text())
    assert resources["class_allow_list"] == list(SITE_CLASSES) and resources["allow_log_streaming"] is False
    assert Policy.read(read_site_file(kit / LOCAL_FILE)["policy"]) == Policy()
