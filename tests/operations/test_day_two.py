"""Day two with real parties (mutual TLS): each way that docs/howto/operations.md describes is walked as it says."""

import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from parties import BIN, COORDINATOR, LEAD, SERVER, Federation, free_ports

import fclseg
from fclseg.engine.run_files import CONFIG
from fclseg.flare.jobs import write_job
from fclseg.flare.kits.project import add_sites, make_kits, renew
from fclseg.flare.kits.server_pages import server_pages
from fclseg.flare.kits.service import search_path
from fclseg.flare.runs.watch_page import page_server
from fclseg.methods.exchange import get_row

pytestmark = pytest.mark.nightly
SECONDS = 1800
ROUNDS = 12  # of which some are left when a test that waits for the second one gets its turn
SITES = ["site-1", "site-2"]
PID_FILES = ("daemon_pid.fl", "pid.fl")


class Hospitals(Federation):
    """Kits of ``fclseg server init``."""

    def __init__(self, out: Path):
        super().__init__(out)
        self.folder = out / "federation"
        self.kits = {one.name: one.kit for one in make_kits(self.folder, SERVER, SITES, free_ports(1)[0])}
        (out / "home").mkdir()

    def kit(self, party):
        return self.kits[party]

    def replace_startup(self, party, newer):
        """What the coordinator tells a party to do with a renewed kit."""
        shutil.rmtree(self.kit(party) / "startup")
        shutil.copytree(newer / "startup", self.kit(party) / "startup")

    def joined(self, site):
        return self.log(SERVER).count(f"New client {site}@")

    def restart(self, party):
        self.stop(party)
        self.start(party)

    def run(self, name, rounds):
        job = self.out / "jobs" / name
        values = {"preset": "demo", "rounds": rounds, "run": name, "min_sites": 1}
        write_job(job, get_row("fclopt"), values, simulator=False)
        threading.Thread(target=self.submit, args=[job]).start()
        return self.kit(SERVER) / "runs" / name


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory, images):
    made = Hospitals(tmp_path_factory.mktemp("day-two"))
    for site in SITES:
        made.configure(site, data=str(images), cache=str(made.out / "cache"), device="cpu", policy={})
    made.start(SERVER)
    for site in SITES:
        made.start(site)
    made.wait_for(SITES, SECONDS)
    yield made
    made.stop()


def until(done, what):
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


def rounds(run):
    path = run / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_hospital_that_is_added_later_registers(hospitals, images):
    (party,) = add_sites(hospitals.folder, ["site-3"])
    hospitals.kits["site-3"] = party.kit
    hospitals.configure("site-3", data=str(images), cache=str(hospitals.out / "cache"), device="cpu", policy={})
    hospitals.start("site-3")
    until(lambda: hospitals.joined("site-3"), "site-3 is not there")
    hospitals.stop("site-3")


def test_renewed_certificates_of_a_site_the_server_and_the_lead_work_beside_old_ones(hospitals):
    newer = {one.name: one.kit for one in renew(hospitals.folder, ["site-1", SERVER, LEAD])}
    before = {site: hospitals.joined(site) for site in SITES}
    hospitals.stop(*SITES, SERVER)  # site-2, too: its token was signed with the server's old key
    for party in newer:
        old = (hospitals.kit(party) / "startup" / "rootCA.pem").read_bytes()
        hospitals.replace_startup(party, newer[party])
        assert (hospitals.kit(party) / "startup" / "rootCA.pem").read_bytes() == old
    for party in (SERVER, *SITES):
        hospitals.start(party)
    until(lambda: all(hospitals.joined(site) > before[site] for site in SITES), "not all sites are back")
    run = hospitals.run("renewed", 1)
    until(lambda: (run / "result.json").exists(), "the renewed lead's run is not complete")


def test_the_server_is_watched(hospitals):
    pages = page_server(server_pages(hospitals.kit(SERVER)), 0)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    try:
        address = f"http://localhost:{pages.server_address[1]}/"
        assert urllib.request.urlopen(f"{address}health", timeout=SECONDS).read() == b"ok\n"
        said = urllib.request.urlopen(f"{address}metrics", timeout=SECONDS).read().decode()
    finally:
        pages.shutdown()
        pages.server_close()
    assert "fclseg_server_up 1\n" in said and 'fclseg_run_rounds_done{run="renewed"} 1\n' in said


def test_backups_of_server_and_site_that_were_taken_during_a_run_continue_it(hospitals):
    run = hospitals.run("restored", ROUNDS)
    until(lambda: len(rounds(run)) >= 2, "no round")
    hospitals.stop(SERVER, "site-1")
    done, backup = len(rounds(run)), hospitals.out / "backup"
    assert done < ROUNDS
    kept = {"kit": hospitals.kit(SERVER), "store": hospitals.folder / "store", "site": hospitals.kit("site-1")}
    for name, folder in kept.items():
        shutil.copytree(folder, backup / name, symlinks=True)
        shutil.rmtree(folder)
    for name, folder in kept.items():
        shutil.copytree(backup / name, folder, symlinks=True)
    hospitals.start(SERVER)
    hospitals.start("site-1")
    until(lambda: (run / "result.json").exists(), "the restored run is not complete")
    assert [one["round"] for one in rounds(run)] == list(range(ROUNDS))


def test_all_parties_are_upgraded_in_the_middle_of_a_run(hospitals, monkeypatch):
    """Another version of the package with the same format: stop all, install, start all."""
    copy = hospitals.out / "newer"
    shutil.copytree(Path(fclseg.__file__).parent, copy / "fclseg", ignore=shutil.ignore_patterns("__pycache__"))
    init = copy / "fclseg" / "__init__.py"
    init.write_text(init.read_text().replace(fclseg.__version__, "9.9.9"))
    run = hospitals.run("upgraded", ROUNDS)
    until(lambda: len(rounds(run)) >= 2, "no round")
    hospitals.stop(SERVER, *SITES)
    assert len(rounds(run)) < ROUNDS
    monkeypatch.setitem(hospitals.environment, "PYTHONPATH", str(copy))
    for party in (SERVER, *SITES):
        hospitals.start(party)
    until(lambda: (run / "result.json").exists(), "the upgraded run is not complete")
    assert [one["round"] for one in rounds(run)] == list(range(ROUNDS))
    assert {report["status"] for one in rounds(run)[-3:] for report in one["sites"].values()} == {"ok"}
    assert json.loads((run / CONFIG).read_text())["version"] == fclseg.__version__  # that of its first day
    for party in (SERVER, *SITES):
        hospitals.stop(party)
    monkeypatch.undo()
    before = {site: hospitals.joined(site) for site in SITES}
    for party in (SERVER, *SITES):
        hospitals.start(party)
    until(lambda: all(hospitals.joined(site) > before[site] for site in SITES), "not all sites are back")


def test_a_hospital_that_is_disabled_is_not_heard_again_not_even_by_a_restarted_server(hospitals):
    command = ["system", "disable-client", "site-2", "--force", "--startup-kit", str(hospitals.kit(COORDINATOR))]
    hospitals.nvflare(*command)
    refused = "Reject disabled client registration: site-2"
    for restarted in (["site-2"], [SERVER, "site-2"]):  # the site, too: a refused one gives up after a minute
        seen, joined = hospitals.log(SERVER).count(refused), hospitals.joined("site-2")
        for party in restarted:
            hospitals.restart(party)
        until(lambda seen=seen: hospitals.log(SERVER).count(refused) > seen, f"{restarted}: not refused")
        assert hospitals.joined("site-2") == joined
    with pytest.raises(fclseg.errors.FCLSegError):  # a lead has no such right
        hospitals.nvflare("system", "enable-client", "site-2", "--force", "--startup-kit", str(hospitals.kit(LEAD)))


def test_a_party_in_the_background_stops_with_its_own_script(hospitals):
    kit = hospitals.kit("site-3")
    environment = hospitals.environment | {"PATH": search_path(hospitals.environment["PATH"])}
    for name in (*PID_FILES, "log.txt"):  # left by an earlier test's processes, whose numbers others may have by now
        (kit / name).unlink(missing_ok=True)
    subprocess.run(
        [BIN / "fclseg", "site", "join", kit, "--start"],
        env=environment,
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    # While it starts, NVFlare removes requests to stop. It logs afterwards.
    until(lambda: all((kit / name).exists() for name in (*PID_FILES, "log.txt")), "it does not start")
    pids = [int((kit / name).read_text()) for name in PID_FILES]
    subprocess.run(["bash", kit / "startup" / "stop_fl.sh"], input="y", text=True, check=True, capture_output=True)
    try:
        until(lambda: not any(map(alive, pids)), "it does not stop")
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
    assert not (kit / "pid.fl").exists()


def alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_logs_are_rotated(hospitals):
    """NVFlare's own configuration in our kits: eleven files of 20 MB at most for each of four logs."""
    document = json.loads((hospitals.kit("site-1") / "local" / "log_config.json.default").read_text())
    files = [handler for handler in document["handlers"].values() if "filename" in handler]
    assert len(files) == 4
    assert {(one["class"], one["maxBytes"], one["backupCount"]) for one in files} == {
        ("logging.handlers.RotatingFileHandler", 20 * 2**20, 10)
    }
