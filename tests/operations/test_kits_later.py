"""A federation after its first day: further hospitals, renewed certificates, and the server's own pages."""

import json
import socket
import threading
import urllib.error
import urllib.request

import pytest
from cryptography import x509

from fclseg.cli import main
from fclseg.engine.run_folder import RunFolder
from fclseg.flare.kits.kit import AUTHORITY, CERTIFICATE, KEY, Kit
from fclseg.flare.kits.server_pages import CONFIG, server_pages
from fclseg.flare.runs.watch_page import page_server


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("later") / "federation"
    assert main(["server", "init", str(made), "--host", "localhost", "--sites", "site-1,site-2"]) == 0
    return made


def newest(folder, party):
    return max((folder / "kits" / "fclseg").glob("prod_*")) / party


def files(kit):
    return [(kit / name).read_bytes() for name in (CERTIFICATE, KEY, AUTHORITY)]


def test_a_hospital_that_is_added_has_the_same_root_and_the_others_keep_theirs(folder, capsys):
    before = {site: files(newest(folder, site)) for site in ("site-1", "site-2")}
    assert main(["server", "add", str(folder), "--sites", "site-3"]) == 0
    printed = capsys.readouterr().out
    kit = newest(folder, "site-3")
    assert str(kit) in printed and "site-1" not in printed
    assert Kit(kit).missing == [] and files(kit)[2] == before["site-1"][2]
    Kit(kit).certificate().verify_directly_issued_by(Kit(kit).certificate(AUTHORITY))
    assert {site: files(newest(folder, site)) for site in before} == before


@pytest.mark.parametrize(
    ("sites", "sentence"),
    [("site-1", "already has site-1"), ("a b", "'a b' is not a valid name"), ("x,x", "name each hospital once")],
)
def test_what_cannot_be_added_changes_nothing(folder, capsys, sites, sentence):
    before = (folder / "project.yml").read_text()
    assert main(["server", "add", str(folder), "--sites", sites]) == 1
    assert sentence in capsys.readouterr().err and (folder / "project.yml").read_text() == before


def test_only_the_named_parties_get_a_new_key_and_certificate(folder):
    before = {party: newest(folder, party) for party in ("site-1", "site-2", "lead@coordinator.org")}
    assert main(["server", "renew", str(folder), "site-1", "lead@coordinator.org"]) == 0
    for party, old in before.items():
        kept = [one == other for one, other in zip(files(newest(folder, party)), files(old), strict=True)]
        assert kept == ([True] * 3 if party == "site-2" else [False, False, True]), party
    renewed = Kit(newest(folder, "site-1"))
    renewed.certificate().verify_directly_issued_by(renewed.certificate(AUTHORITY))
    assert renewed.certificate().not_valid_after_utc > Kit(before["site-1"]).certificate().not_valid_after_utc


def test_a_certificate_can_be_renewed_for_years_because_the_root_lives_longer(folder):
    root = Kit(newest(folder, "site-1")).certificate(AUTHORITY)
    assert (root.not_valid_after_utc - root.not_valid_before_utc).days == 3650


def test_an_unknown_party_and_another_folder_are_refused(folder, tmp_path, capsys):
    state = folder / "kits" / "fclseg" / "state" / "cert.json"
    before = state.read_text()
    assert main(["server", "renew", str(folder), "site-2", "site-9"]) == 1
    assert "has no party 'site-9'" in capsys.readouterr().err and state.read_text() == before
    assert main(["server", "renew", str(tmp_path), "site-1"]) == 1
    assert "contains no project" in capsys.readouterr().err
    for command in (["service"], ["watch", "--port", "0"]):
        assert main(["server", command[0], str(newest(folder, "site-1")), *command[1:]]) == 1
        assert "is not the server's startup kit" in capsys.readouterr().err


def test_the_server_tells_whether_it_answers_and_how_its_runs_are(folder, monkeypatch):
    kit = newest(folder, "localhost")
    run = RunFolder(kit / "runs" / "spring")
    run.open({"settings": {"job": "fclopt_dp", "preset": "demo", "rounds": 5, "seed": 0}}, fresh=False)
    (run.path / "rounds.jsonl").write_text(json.dumps({"round": 0, "loss": 1.5, "sites": {}, "seconds": 1.0}) + "\n")
    listener = socket.create_server(("127.0.0.1", 0))
    config = kit / CONFIG
    port = json.loads(config.read_text())["servers"][0]["service"]["target"].rpartition(":")[2]
    config.write_text(config.read_text().replace(port, str(listener.getsockname()[1])))
    pages = page_server(server_pages(kit), 0)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    address = f"http://localhost:{pages.server_address[1]}"
    try:
        assert urllib.request.urlopen(f"{address}/health", timeout=600).read() == b"ok\n"
        said = urllib.request.urlopen(f"{address}/metrics", timeout=600).read().decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in said)
        certificate = x509.load_pem_x509_certificate((kit / "startup" / "server.crt").read_bytes())
        days = (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days
        assert values["fclseg_server_up"] == "1" and float(values["fclseg_server_certificate_days"]) == pytest.approx(
            days, abs=1
        )
        assert values['fclseg_run_rounds_done{run="spring"}'] == "1"
        listener.close()
        with pytest.raises(urllib.error.HTTPError) as gone:
            urllib.request.urlopen(f"{address}/health", timeout=600)
        assert (gone.value.code, gone.value.read()) == (503, b"the server does not answer on its port\n")
    finally:
        pages.shutdown()
        pages.server_close()
