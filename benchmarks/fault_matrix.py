"""Measures what happens when parts of a real federation die: mutual-TLS processes on this machine, killed in a run.

    python benchmarks/fault_matrix.py --out DIR                      every case once (about three minutes each)
    python benchmarks/fault_matrix.py --out DIR --cases site-parent --times 3

For each case: what the operator had to do, the seconds until the server noticed and until the run was complete, and
whether its encoder equals that of a run without faults. A round that continued without a site gives other numbers.
"""

import argparse
import contextlib
import hashlib
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.append(str(Path(__file__).parents[1] / "poc"))
from parties import ENDED, SERVER, Federation

from fclseg.data.phantom import write_phantom
from fclseg.errors import FCLSegError
from fclseg.federation.exchange import get_row
from fclseg.flare.jobs import write_job
from fclseg.flare.overview import read_run

ROUNDS, FAULT_AFTER = 6, 2
LIMIT = 900
PARENT = {SERVER: "server_train"}
JOB = {SERVER: "runner_process"}


def processes(federation: Federation, party: str, kind: str) -> list[psutil.Process]:
    """The parent process of a party, or the process of its job."""
    names = {"parent": PARENT.get(party, "client_train"), "job": JOB.get(party, "worker_process")}
    root = psutil.Process(federation.pid(party))  # the start script, which becomes the parent process
    return [one for one in (root, *root.children(recursive=True)) if names[kind] in " ".join(one.cmdline())]


def strike(federation: Federation, party: str, kinds: str, number: int) -> None:
    found = [one for kind in kinds.split("+") for one in processes(federation, party, kind)]
    if not found:
        raise FCLSegError(f"{party} has no process to kill: see {federation.out}/{party}.log")
    for one in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(number)


@dataclass(frozen=True)
class Case:
    """Which processes of which party get which signal; ``restarts``: the service manager restarts the party."""

    party: str
    kinds: str
    number: int = signal.SIGKILL
    restarts: bool = False


CASES = {
    "site-job": Case("site-1", "job"),
    "site-parent": Case("site-1", "parent", restarts=True),
    "site-both": Case("site-1", "parent+job", restarts=True),
    "site-stopped": Case("site-1", "job", signal.SIGSTOP),
    "server-job": Case(SERVER, "job"),
    "server-parent": Case(SERVER, "parent", restarts=True),
    "server-both": Case(SERVER, "parent+job", restarts=True),
}


def prepare(out: Path) -> tuple[Federation, Path]:
    """Three connected parties with two phantom hospitals, and a job."""
    federation = Federation(out)
    federation.provision()
    for number, site in enumerate(federation.sites):
        write_phantom(out / "data" / site, patients=2, frames=2, seed=number)
        federation.configure(site, data=str(out / "data" / site), cache=str(out / "cache" / site))
    job = out / "job" / "fclopt_dp"
    write_job(job, get_row("fclopt_dp"), {"preset": "demo", "rounds": ROUNDS}, simulator=False)
    federation.start_all(seconds=600)
    return federation, job


def until(done: Callable[[], object], what: str) -> float:
    started = time.monotonic()
    while not done():
        if time.monotonic() - started > LIMIT:
            raise FCLSegError(f"{what}: not within {LIMIT} s")
        time.sleep(0.5)
    return time.monotonic() - started


def run_case(case: Case | None, out: Path) -> dict[str, object]:
    """One run with one fault (None: without a fault)."""
    shutil.rmtree(out, ignore_errors=True)
    federation, job = prepare(out)
    folder = federation.kit(SERVER) / "runs" / "fclopt_dp-demo"

    def rounds() -> list[dict]:
        return read_run(folder).records if (folder / "rounds.jsonl").exists() else []

    try:
        job_id, action, noticed = federation.submit(job), "nothing", 0.0
        if case is not None:
            until(lambda: len(rounds()) >= FAULT_AFTER, "the first rounds")
            before, struck = len(rounds()), time.monotonic()
            strike(federation, case.party, case.kinds, case.number)
            if case.restarts:
                time.sleep(5)
                federation.stop(case.party)
                federation.start(case.party)
            if case.party == SERVER and case.restarts:  # NVFlare lists the old job as running for ever
                until(lambda: _connected(federation, case.restarts), "the sites are back")
                action = "submitted the job again"
                federation.submit(job)
            else:
                until(lambda: _noticed(federation, job_id, rounds()[before:]), "the fault is noticed")
            noticed = time.monotonic() - struck
        if action == "nothing" and not (folder / "result.json").exists() and _ended(federation, job_id):
            action = "submitted the job again"
            federation.submit(job)
        left = until(lambda: (folder / "result.json").exists(), "the run is complete")
        digest = hashlib.sha256((folder / "encoder.safetensors").read_bytes()).hexdigest()[:12]
        missed = sum(report["status"] != "ok" for record in rounds() for report in record["sites"].values())
        return {"operator": action, "noticed": noticed, "complete": noticed + left, "sha": digest, "missed": missed}
    finally:
        federation.stop()


def _ended(federation: Federation, job_id: str) -> bool:
    """Whether the server says that the job is over. A server that does not answer has lost it."""
    try:
        meta = json.loads(federation.job("meta", job_id, "--format", "json"))
    except FCLSegError:
        return False
    return any(word in json.dumps(meta) for word in ENDED)


def _connected(federation: Federation, again: bool) -> bool:
    """Whether every site has registered, and with ``again`` a second time, with the restarted server."""
    log = federation.log(SERVER)
    return all(
        log.count(f"New client {site}@") + log.count(f"Re-activate the client: {site} ") > again
        for site in federation.sites
    )


def _noticed(federation: Federation, job_id: str, records: list[dict]) -> bool:
    """Whether a round after the fault went on without a site, or the job has ended."""
    missed = any(report["status"] != "ok" for record in records for report in record["sites"].values())
    return missed or _ended(federation, job_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--cases", default=",".join(CASES), metavar="A,B", help=f"some of {', '.join(CASES)}")
    parser.add_argument("--times", type=int, default=1, metavar="N")
    arguments = parser.parse_args()
    reference = run_case(None, arguments.out.absolute() / "reference")
    print(f"no fault: complete, encoder {reference['sha']}", flush=True)
    print("| fault | operator | noticed, s | complete, s | rounds missed by a site | bit-identical |")
    print("|---|---|---|---|---|---|")
    for name in arguments.cases.split(","):
        for number in range(arguments.times):
            try:
                found = run_case(CASES[name], arguments.out.absolute() / f"{name}-{number}")
                same = "yes" if found["sha"] == reference["sha"] else "no"
                seconds = f"{found['noticed']:.0f} | {found['complete']:.0f}"
                print(f"| {name} | {found['operator']} | {seconds} | {found['missed']} | {same} |", flush=True)
            except FCLSegError as error:
                print(f"| {name} | {error} | | | | |", flush=True)


if __name__ == "__main__":
    main()
