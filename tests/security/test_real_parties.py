"""Attacks on real processes with provisioned kits: a server and two sites that use mutual TLS."""

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from broken_sites import FAULTS, NAME, break_site
from nvflare.fuel.flare_api.flare_api import new_secure_session
from parties import COORDINATOR, LEAD, PATIENCE, SERVER, Federation

from fclseg.engine.job_defaults import DEFAULTS
from fclseg.engine.place import LOCAL_FILE
from fclseg.errors import FCLSegError
from fclseg.files import write_text
from fclseg.flare.jobs import write_job
from fclseg.methods.exchange import get_row
from fclseg.phantom.dataset import write_phantom
from fclseg.privacy.accountant import epsilon

pytestmark = pytest.mark.nightly

SITES = ("site-1", "site-2")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A provisioned project whose server runs, and no site yet."""
    federation = Federation(tmp_path_factory.mktemp("federation"))
    federation.provision()
    for number, site in enumerate(SITES):
        write_phantom(federation.out / "data" / site, patients=2, frames=2, seed=number)
        federation.configure(site, **healthy(federation, site))
    federation.start(SERVER)
    deadline = time.monotonic() + PATIENCE
    while not reachable(federation) and time.monotonic() < deadline:
        time.sleep(0.5)
    yield federation
    federation.stop()


@pytest.fixture(scope="module")
def sites(server):
    for site in SITES:
        server.start(site)
    server.wait_for(SITES)
    return server


def healthy(federation, site):
    out = federation.out
    return {"data": str(out / "data" / site), "cache": str(out / "cache" / site), "device": "cpu", "policy": {}}


def port(federation):
    (party,) = (party for party in federation.project["participants"] if party["type"] == "server")
    return party["fed_learn_port"]


def reachable(federation):
    with contextlib.suppress(OSError), socket.create_connection((SERVER, port(federation)), timeout=2):
        return True
    return False


def real_job(federation, name="fclopt", **settings):
    job = federation.out / "jobs" / f"{name}-{time.monotonic_ns()}" / name
    given = {**DEFAULTS, "rounds": 1, "pickup_timeout": 900, "pretrain_timeout": 900, "run": job.parent.name}
    write_job(job, get_row(name), {**given, **settings}, simulator=False)
    return job


def edited(job, change):
    path = job / "app" / "config" / "config_fed_client.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return job


def finished(federation, job):
    job_id = federation.submit(job)
    return federation.wait(job_id, PATIENCE), job_id


# --- outsiders ---------------------------------------------------------------------------------------------------


def self_signed(folder: Path) -> Path:
    """A self-signed certificate with the name of a site."""
    subject = "/CN=site-1/O=hospital_a"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", subject]
    command += ["-keyout", str(folder / "client.key"), "-out", str(folder / "client.crt")]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_only_who_has_a_certificate_of_the_project_is_heard(server, tmp_path):
    """The same question by a site, by nobody in particular, and by somebody who made a certificate of their own."""
    answers = {}
    for who, kit in {"site": server.kit("site-1") / "startup", "nobody": None, "own": self_signed(tmp_path)}.items():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(server.kit("site-1") / "startup" / "rootCA.pem")
        if kit is not None:
            context.load_cert_chain(kit / "client.crt", kit / "client.key")
        answers[who], plain = b"", socket.create_connection((SERVER, port(server)), timeout=600)
        with plain, contextlib.suppress(OSError), context.wrap_socket(plain, server_hostname=SERVER) as secure:
            secure.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answers[who] = secure.recv(1000)  # TLS 1.3 tells of a missing certificate at the first read
    assert answers["site"].startswith(b"HTTP/1.1 ") and answers["nobody"] == answers["own"] == b""


def test_plain_http_is_not_answered(server):
    with socket.create_connection((SERVER, port(server)), timeout=600) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(OSError):
            assert b"HTTP/1.1 200" not in plain.recv(1000)


def test_an_old_protocol_is_not_spoken(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # so that it is the server that refuses
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection((SERVER, port(server)), timeout=600) as plain,
        pytest.raises(ssl.SSLError, match=r"EOF|(?i:alert)"),
    ):
        context.wrap_socket(plain, server_hostname=SERVER)


def test_a_site_cannot_join_under_the_name_of_another(server):
    """site-2's certificate, and the claim to be site-1."""
    kit = server.out / "impostor"
    shutil.copytree(server.kit("site-2"), kit)
    script = kit / "startup" / "sub_start.sh"
    script.write_text(script.read_text().replace("uid=site-2", "uid=site-1"))
    known = server.log(SERVER).count("New client site-1@")
    server.start("impostor-process", kit=kit)
    try:
        deadline = time.monotonic() + PATIENCE
        while "authenticated as 'site-2' but claimed endpoint 'site-1'" not in server.log(SERVER):
            assert time.monotonic() < deadline, server.log("impostor-process")[-3000:]
            time.sleep(0.5)
        assert server.log(SERVER).count("New client site-1@") == known
        assert "Successfully registered client" not in server.log("impostor-process")
    finally:
        server.stop("impostor-process")


# --- jobs --------------------------------------------------------------------------------------------------------


def test_an_honest_job_runs_and_the_audit_tells_of_it(sites):
    status, job_id = finished(sites, real_job(sites, "fclopt_dp", rounds=2))
    assert status == "FINISHED:COMPLETED", sites.log(SERVER)[-3000:]
    found = list(sites.download(job_id).rglob("encoder.safetensors"))
    assert len(found) == 1
    for site in SITES:
        lines = [json.loads(line) for line in (sites.kit(site) / "runs" / "audit.jsonl").read_text().splitlines()]
        assert {line["submitter"] for line in lines} == {LEAD} and {line["outcome"] for line in lines} == {"sent"}
        assert [line["task"] for line in lines] == ["distance", "pretrain"] * 2


def test_a_job_with_code_is_not_run(sites):
    job, proof = real_job(sites), sites.out / "code-ran"
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "evil.py").write_text(f"open({str(proof)!r}, 'w')\n")
    with pytest.raises(FCLSegError, match=r"the job brings code \(custom/evil.py\)"):
        sites.submit(job)
    assert not proof.exists()


def test_a_reference_to_the_servers_environment_is_refused_at_submission(sites):
    with pytest.raises(FCLSegError, match="contains a reference"):
        sites.submit(edited(real_job(sites), lambda document: document.update(note="leak-{$PATH}")))


def test_a_lead_cannot_start_from_any_file_of_the_server(sites):
    """The same sentence whether the file exists or not."""
    reasons = set()
    for number, path in enumerate(("/etc/passwd", "/etc/no-such-file")):
        name = f"start-{number}-{time.monotonic_ns()}"
        status, _ = finished(sites, real_job(sites, "mean_teacher", network=path, run=name))
        assert status != "FINISHED:COMPLETED"
        reasons.add("'network' is not below the server's folder of runs" in sites.log(SERVER))
    assert reasons == {True}


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("fclseg.files.write_text", {"path": "PROOF", "text": "x"}),
        ("fclseg.finetune.train.train", {"spec": None}),
        ("nvflare.app_common.logging.job_log_streamer.JobLogStreamer", {"log_file_name": "log.txt"}),
        ("nvflare.app_common.widgets.convert_to_fed_event.ConvertToFedEvent", {"events_to_convert": ["x"]}),
    ],
)
def test_a_job_that_names_another_class_is_not_run(sites, path, arguments):
    proof = sites.out / "class-ran"
    given = {name: str(proof) if value == "PROOF" else value for name, value in arguments.items()}
    job = edited(
        real_job(sites, min_sites=1),
        lambda document: document["components"].append({"id": "x", "path": path, "args": given}),
    )
    with pytest.raises(FCLSegError, match=f"names the class {path}"):
        sites.submit(job)
    assert not proof.exists()


def test_the_coordinator_cannot_submit_and_a_lead_can_do_nothing_else(sites):
    with pytest.raises(FCLSegError, match="not authorized for 'submit_job'"):
        sites.submit(real_job(sites), by=COORDINATOR)
    for command in (("list",), ("logs", "x")):
        with pytest.raises(FCLSegError):
            sites.job(*command)


SHELL = {
    "ls": lambda session, target: session.ls_target(target, path="startup"),
    "cat": lambda session, target: session.cat_target(target, file="local/fclseg.json"),
    "head": lambda session, target: session.head_target(target, file="startup/fed_client.json"),
    "tail": lambda session, target: session.tail_target(target, file="log.txt"),
    "grep": lambda session, target: session.grep_target(target, pattern="key", file="startup/fed_client.json"),
    "pwd": lambda session, target: session.get_working_directory(target),
}


@pytest.mark.parametrize("party", [LEAD, COORDINATOR])
def test_shell_commands_of_the_admin_console_are_denied_to_every_role(sites, party):
    session = new_secure_session(party, str(sites.kit(party)), timeout=600, command_timeout=600)
    try:
        for name, command in SHELL.items():
            for target in ("site-1", "server"):
                with pytest.raises(Exception, match=rf"(?i)not authorized.*{name} {target}"):
                    command(session, target)
    finally:
        session.close()


def test_features_stay_at_a_hospital_that_has_not_allowed_them(sites):
    status, job_id = finished(sites, real_job(sites, "fcl"))
    assert status != "FINISHED:COMPLETED"
    assert "this site does not let component 'bank' leave" in sites.log(SERVER)
    audit = (sites.kit("site-1") / "runs" / "audit.jsonl").read_text().splitlines()
    assert json.loads(audit[-1])["outcome"] == "refused" and job_id in audit[-1]


def test_a_spent_budget_stops_that_site_only(sites):
    """sigma 4 is a noise multiplier of 2 per round: two rounds fit into the budget of site-2, the third does not."""
    pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")
    budget = (epsilon([2.0] * 2, 1e-5) + epsilon([2.0] * 3, 1e-5)) / 2
    policy = {"clip": 0.1, "sigma": 4.0, "epsilon": budget}
    sites.configure("site-2", **{**healthy(sites, "site-2"), "policy": policy})
    try:
        status, job_id = finished(sites, real_job(sites, "fedbyol", rounds=4, min_sites=1, outliers="off"))
    finally:
        sites.configure("site-2", **healthy(sites, "site-2"))
    assert status == "FINISHED:COMPLETED", sites.log(SERVER)[-3000:]
    file = next(sites.download(job_id).rglob("rounds.jsonl"))
    reports = [json.loads(line)["sites"] for line in file.read_text().splitlines()]
    assert [report["site-1"]["status"] for report in reports] == ["ok"] * 4
    assert [report["site-2"]["status"] for report in reports[:2]] == ["ok"] * 2
    assert all("the privacy budget of this site is spent" in report["site-2"]["status"] for report in reports[2:])
    audit = [json.loads(line) for line in (sites.kit("site-2") / "runs" / "audit.jsonl").read_text().splitlines()]
    assert [line["outcome"] for line in audit if line["job_id"] == job_id] == ["sent", "sent", "refused", "refused"]


# --- what a failing site tells -----------------------------------------------------------------------------------


def holding(folder: Path, text: str) -> list[Path]:
    """All files below a folder that contain a text, in their name or content, compressed or not."""
    found = [path for path in folder.rglob("*") if text in path.name]
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if text.encode() in content:
                found.append(path)
            elif content[:2] == b"PK":
                listing = subprocess.run(["unzip", "-p", str(path)], capture_output=True)
                found += [path] if text.encode() in listing.stdout else []
    return found


def test_after_twenty_failures_the_server_knows_no_patient(sites):
    """One site trains; the other fails in a new way in each round. Then the server's whole disk is searched."""
    broken = sites.out / "data" / "broken"  # a folder for each fault: the site must never see one half broken
    sites.configure("site-2", **break_site(broken / "first", "truncated", healthy(sites, "site-2")))

    def begun():
        job = real_job(sites, "fedbyol", rounds=len(FAULTS) + 10, min_sites=1)
        runs.append(sites.kit(SERVER) / "runs" / job.parent.name)
        return sites.submit(job)

    runs: list[Path] = []
    job_id, problems = begun(), sites.kit("site-2") / "runs" / "problems.log"
    failed, deadline = [], time.monotonic() + PATIENCE
    for number, fault in enumerate(FAULTS):
        own = break_site(broken / str(number) / "data", fault, healthy(sites, "site-2"))
        write_text(sites.kit("site-2") / LOCAL_FILE, json.dumps(own))
        size = problems.stat().st_size if problems.exists() else 0
        while time.monotonic() < deadline:
            if problems.exists() and problems.stat().st_size > size:
                failed.append(fault)
                break
            if (runs[-1] / "result.json").exists():  # its rounds were faster than this test
                job_id = begun()
            time.sleep(0.2)
    assert len(failed) >= 20, failed
    status = sites.wait(job_id, PATIENCE)
    assert status == "FINISHED:COMPLETED"
    sites.configure("site-2", **healthy(sites, "site-2"))
    assert problems.read_text().count(NAME) >= 20  # the site itself knows
    download = sites.download(job_id)
    for folder in (sites.kit(SERVER), sites.store, download):
        assert folder.is_dir() and holding(folder, NAME) == []
    assert NAME not in sites.log(SERVER)
    lines = [line for run in runs for line in (run / "rounds.jsonl").read_text().splitlines()]
    reasons = {json.loads(line)["sites"]["site-2"]["status"] for line in lines}
    assert any("see problems.log" in reason for reason in reasons)
