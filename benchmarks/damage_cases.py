"""Faults of the matrix in which nothing is lost, so that nobody should have to do anything: damaged files, a copied
server, new patients, a pipe, and a run that is complete. Each case raises if the parties reacted in another way."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fault_bench import SITES, FaultBench, until
from parties import SERVER, free_ports

from fclseg.errors import FCLSegError
from fclseg.phantom.dataset import write_phantom

SITE = SITES[0]
NOTHING = "nothing"
SECONDS_TO_RETURN = 120
SETTLED = 2.0
"""Seconds after a kill until nothing that was under way arrives any more."""


def truncated_state(bench: FaultBench, run: str) -> str:
    """A site's machine dies, and half of the state that its next round starts from is lost."""
    until(lambda: len(bench.rounds(run)) >= 2, "a second state")
    bench.halt(SITE)
    time.sleep(SETTLED)
    memory = bench.disk(SITE) / run / "sites" / SITE
    path = memory / f"round-{len(bench.rounds(run)) - 1:04d}.safetensors"
    os.truncate(path, path.stat().st_size // 2)
    if bench.complete(run):
        raise FCLSegError("the run was complete before the state was damaged")
    with _says(bench, SITE, "the site continues with its state of round"):
        bench.begin(SITE)
    return NOTHING


def flipped_bit(bench: FaultBench, run: str) -> str:
    """The server's machine dies, and its newest checkpoint has one wrong bit."""
    until(lambda: len(bench.rounds(run)) >= 2, "a second checkpoint")
    bench.halt(SERVER)
    time.sleep(SETTLED)
    path = max((bench.folder(run) / "checkpoints").glob("round-*.safetensors"))
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with _says(bench, SERVER, "the run continues from the checkpoint before it"):
        bench.begin(SERVER)
    return NOTHING


def second_server(bench: FaultBench, run: str) -> str:
    """A copy of the server's kit is started with the same store of jobs, as on a second machine: on other ports."""
    before, copy = _jobs(bench), bench.out / "copied-server"
    shutil.rmtree(copy, ignore_errors=True)
    kit = bench.federation.kit(SERVER)
    shutil.copytree(kit, copy, ignore=shutil.ignore_patterns("*.fl", "runs", "log.*"))
    config = copy / "startup" / "fed_server.json"
    (party,) = (one for one in bench.federation.project["participants"] if one["type"] == "server")
    text = config.read_text()
    for name, port in zip(("fed_learn_port", "admin_port"), free_ports(2), strict=True):
        text = text.replace(str(party[name]), str(port))
    config.write_text(text)
    bench.federation.start("second-server", copy)
    try:
        until(lambda: "this server continues no run" in bench.federation.log("second-server"), "the copy stands back")
        time.sleep(15)  # its scheduler must not begin anything either
    finally:
        bench.federation.stop("second-server")
    if _jobs(bench) != before:
        raise FCLSegError("the second server submitted a job")
    return NOTHING


def added_patient(bench: FaultBench, run: str) -> str:
    """A patient is added to a site's images during the run, and removed after it for the runs that follow."""
    new = bench.out / "new-patient"
    if not new.exists():
        write_phantom(new, patients=3, frames=2, seed=9)
    patient = max(path for path in new.iterdir() if path.is_dir())
    added = Path(shutil.copytree(patient, bench.out / "data" / SITE / patient.name))
    try:
        until(lambda: bench.complete(run), "the run is complete")
    finally:
        shutil.rmtree(added)
    samples = {record["sites"][SITE].get("samples") for record in bench.rounds(run)}
    if len(samples) != 1:
        raise FCLSegError(f"the number of samples changed during the run: {samples}")
    return NOTHING


def join_through_a_pipe(bench: FaultBench, run: str) -> str:
    """The site is started again as by ``fclseg site join --start | ...``, which must return. Without the command's
    checks: it would refuse the small disk of this bench."""
    bench.halt(SITE)
    kit = bench.federation.kit(SITE)
    code = f"from pathlib import Path; from fclseg.flare.kits.service import start_kit; start_kit(Path({str(kit)!r}))"
    command = [sys.executable, "-c", code]
    environment = bench.federation.environment
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_TO_RETURN)
        if done.returncode:
            raise FCLSegError(f"the site did not start: {done.stdout[-500:]}{done.stderr[-500:]}")
        until(lambda: bench.complete(run), "the run is complete")
    except subprocess.TimeoutExpired:
        raise FCLSegError(f"the command did not return within {SECONDS_TO_RETURN} s") from None
    finally:
        _end(kit)
    bench.begin(SITE)
    return NOTHING


def complete_run_again(bench: FaultBench, run: str) -> str:
    """The lead submits a run again that is complete. It ends at once, and the server does not try it again."""
    until(lambda: bench.complete(run), "the run is complete")
    second = bench.submit(run)
    until(lambda: "FINISHED" in bench.meta(second), "the second job ends")
    jobs = _jobs(bench)
    time.sleep(20)  # the server would try again after 2 and 10 s
    if _jobs(bench) != jobs:
        raise FCLSegError("the server submitted a complete run again")
    return NOTHING


def _jobs(bench: FaultBench) -> set[str]:
    return {path.name for path in (bench.federation.store / "jobs").iterdir() if path.is_dir()}


@contextlib.contextmanager
def _says(bench: FaultBench, party: str, sentence: str) -> Iterator[None]:
    """Wait until the logs of the party and its jobs have the sentence once more than before."""
    kit = bench.federation.kit(party)

    def times() -> int:
        logs = [kit / "log.txt", *kit.glob("*/log.txt")]
        return sum(path.read_text(errors="replace").count(sentence) for path in logs if path.exists())

    before = times()
    yield
    until(lambda: times() > before, f"{party} says '{sentence}'")


def _end(kit: Path) -> None:
    """End a site that runs in the background, with its jobs."""
    for name in ("daemon_pid.fl", "pid.fl"):
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.killpg(os.getpgid(int((kit / name).read_text())), signal.SIGKILL)
        (kit / name).unlink(missing_ok=True)
