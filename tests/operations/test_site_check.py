"""More than ten planted faults in a site's kit, each reported in one sentence, and none if nothing is wrong."""

import datetime
import importlib.metadata
import json
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from fclseg.cli import main
from fclseg.engine.place import LOCAL_FILE, read_site_file
from fclseg.flare.kits import kit_check
from fclseg.flare.kits.kit import AUTHORITY, CERTIFICATE, CONFIG, KEY, Kit
from fclseg.flare.kits.kit_check import CHECKS, check_kit


def _faults(kit, with_server=False):
    return {result.name: result.fault for result in check_kit(kit.path, with_server) if result.fault}


def _change(path, **entries):
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def _settings(kit, **entries):
    (kit.path / LOCAL_FILE).write_text(json.dumps(read_site_file(kit.path / LOCAL_FILE) | entries))


def _certificate_of(kit, start: int, end: int) -> None:
    """The kit's certificate with other dates (days from now), signed with its own key."""
    old = kit.certificate()
    key = serialization.load_pem_private_key((kit.path / KEY).read_bytes(), None)
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(old.subject).issuer_name(old.issuer).public_key(old.public_key())
    builder = builder.serial_number(1).not_valid_before(now + datetime.timedelta(start))
    new = builder.not_valid_after(now + datetime.timedelta(end)).sign(key, hashes.SHA256())
    (kit.path / CERTIFICATE).write_bytes(new.public_bytes(serialization.Encoding.PEM))


def test_a_sound_kit_has_no_faults_and_every_check_says_what_it_found(kit):
    results = list(check_kit(kit.path, with_server=False))
    assert [result.name for result in results] == [name for name in CHECKS if name != "server"]
    assert all(result.found and not result.fault for result in results), results
    assert {result.name: result.found for result in results}["data"].startswith("2 patients in ")


def test_a_folder_that_is_no_kit(tmp_path):
    (fault,) = check_kit(tmp_path)
    assert fault.fault == f"{tmp_path} is not a complete startup kit (no {CONFIG}): unpack the kit again"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_a_kit_of_another_account_as_in_a_container(kit):
    """The kit is private (0700), and its parent can be entered by everybody."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = shutil.copytree(kit.path, Path(folder) / "kit")
        os.chmod(path, 0o700)
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:  # a process that is another account for good
            os.setgid(65534)
            os.setuid(65534)
            os.write(writer, json.dumps([result.fault for result in check_kit(path)]).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as said:
            (fault,) = json.load(said)
    assert fault.startswith(f"account 65534 cannot use {path}, which belongs to account 0: chown -R 65534 {path}")


def _no_data(kit, other):
    _settings(kit, data=None)


def _data_gone(kit, other):
    _settings(kit, data="/no/such/folder")


def _broken_image(kit, other):
    folder = kit.path / "images"
    shutil.copytree(kit.place.data, folder)
    next(folder.rglob("*frame01.nii.gz")).write_bytes(b"broken")
    _settings(kit, data=str(folder))


def _broken_settings(kit, other):
    (kit.path / LOCAL_FILE).write_text('{"data": ')


def _unknown_policy(kit, other):
    _settings(kit, policy={"round": 3})


def _open_key(kit, other):
    os.chmod(kit.path / KEY, 0o644)


def _other_key(kit, other):
    shutil.copy(other / KEY, kit.path / KEY)


def _other_authority(kit, other):
    _certificate_of(kit, -1, 100)  # signed with a key that is not the project's


def _expired(kit, other):
    _certificate_of(kit, -100, -3)


def _clock_behind(kit, other):
    _certificate_of(kit, 2, 100)


def _logs_sent(kit, other):
    _change(kit.path / "local/resources.json.default", allow_log_streaming=True)


def _any_class(kit, other):
    _change(kit.path / "local/resources.json.default", class_allow_list=["fclseg."])


def _no_gpu(kit, other):
    _settings(kit, device="cuda:7")


def _no_folder(kit, other):
    _settings(kit, runs=f"{kit.path / LOCAL_FILE}/runs")


def _few_patients(kit, other):
    _settings(kit, policy={"patients": 5})


PLANTED = {
    _no_data: ("data", "has no image folder"),
    _data_gone: ("data", "the data folder /no/such/folder of site-1 does not exist"),
    _broken_image: ("data", "frame01.nii.gz: is not a gzip file despite its name"),
    _broken_settings: ("policy", "is not a JSON object: correct it"),
    _unknown_policy: ("policy", "the site's policy has no 'round'"),
    _few_patients: ("data", "has 2 patients, but the site's policy requires 5"),
    _open_key: ("key", "can be read by other accounts: chmod 600"),
    _other_key: ("key", "is not the key of startup/client.crt"),
    _other_authority: ("signature", "the files come from different kits"),
    _expired: ("certificate", "expired 3 days ago: ask the coordinator for a new kit"),
    _clock_behind: ("certificate", "is not valid yet: check this machine's clock"),
    _logs_sent: ("logs", "sends log files to the server"),
    _any_class: ("classes", "lets a job use 'fclseg.', which is not a class of fclseg"),
    _no_gpu: ("device", "there is no device 'cuda:7'"),
    _no_folder: ("disk", '"runs" cannot be written to'),
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__[1:])
def test_a_planted_fault_is_named_in_one_sentence(kit, federation, plant):
    plant(kit, federation.kit("site-2"))
    name, sentence = PLANTED[plant]
    found = _faults(kit)
    assert sentence in found[name] and "\n" not in found[name]
    may_follow = {"signature"} if plant in (_expired, _clock_behind) else set()  # its dates were signed by the test
    assert set(found) - may_follow == {name}


def test_a_certificate_that_expires_soon_is_said_without_being_a_fault(kit, capsys):
    _certificate_of(kit, -100, 20)
    main(["site", "check", str(kit.path)])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " certificate " in line]
    assert line.startswith("SOON") and "ask the coordinator for a new kit now" in line


def test_a_full_disk(kit, monkeypatch):
    monkeypatch.setattr(kit_check, "free_bytes", lambda folder: 300 * 10**6)
    assert _faults(kit)["disk"].startswith('"runs" has 0.3 GB free at ')


def test_another_version(kit, monkeypatch):
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.4.0" if name == "nvflare" else real(name))
    assert _faults(kit) == {"versions": "nvflare 2.4.0 is installed, but fclseg needs 2.9.0: install fclseg again"}


def test_a_server_that_is_not_there_or_not_known(kit):
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
    for host, sentence in (("localhost", "cannot be reached"), ("no-such-host.invalid", "is not known here")):
        document = json.loads((kit.path / CONFIG).read_text())
        document["servers"][0]["service"]["target"] = f"{host}:{port}"
        (kit.path / CONFIG).write_text(json.dumps(document))
        assert sentence in kit_check._result("server", CHECKS["server"], Kit(kit.path)).fault


def test_the_command_lists_every_check_and_fails_when_something_is_wrong(kit, capsys):
    os.chmod(kit.path / KEY, 0o604)
    assert main(["site", "check", str(kit.path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[: len(CHECKS)]] == [
        ["FAULT" if name in ("key", "server") else "ok", name] for name in CHECKS
    ]
    assert (kit.path / AUTHORITY).exists() and lines[-1] == "2 faults: fix them and check again"
