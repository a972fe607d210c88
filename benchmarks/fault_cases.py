"""The faults of the matrix. Each case disturbs a run after its first round and says what the operator did about it."""

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import damage_cases
from fault_bench import LATE, FaultBench, fill, until
from parties import SERVER

from fclseg.errors import FCLSegError

SITE, NOTHING = damage_cases.SITE, damage_cases.NOTHING
Case = Callable[[FaultBench, str], str]
"""(bench, name of the run) -> what the operator did."""


def kill(party: str, *kinds: str) -> Case:
    def case(bench: FaultBench, run: str) -> str:
        bench.strike(party, *kinds)
        return NOTHING

    return case


def cable(seconds: float, way: str) -> Case:
    """The network is away for a while. Nobody does anything about it."""

    def case(bench: FaultBench, run: str) -> str:
        getattr(bench.links[SITE], way)()
        time.sleep(seconds)
        bench.links[SITE].heal()
        return NOTHING

    return case


def stopped(bench: FaultBench, run: str) -> str:
    """The site's processes stand still for 75 seconds, for example a suspended virtual machine."""
    struck = bench.strike(SITE, "parent", "job", number=signal.SIGSTOP)
    time.sleep(75)
    for one in struck:
        one.send_signal(signal.SIGCONT)
    return NOTHING


def disk_full(party: str) -> Case:
    def case(bench: FaultBench, run: str) -> str:
        if bench.disk(party) not in bench.mounts:
            raise FCLSegError("no file system can be mounted here")
        filler = fill(bench.disk(party))
        time.sleep(20)
        filler.unlink()
        return "freed the disk after 20 s"

    return case


def clock_skew(bench: FaultBench, run: str) -> str:
    """The site is restarted with a clock that is one day ahead."""
    library = bench.out / "fake_clock.so"
    source = Path(__file__).with_name("fake_clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source)], check=True)
    _restart(bench, SITE, LD_PRELOAD=str(library), CLOCK_OFFSET="86400")
    return NOTHING


def other_version(bench: FaultBench, run: str) -> str:
    """The site is restarted with a version that speaks another format, and a minute later with the right one."""
    import fclseg

    copy = bench.out / "other_version"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(Path(fclseg.__file__).parent, copy / "fclseg", ignore=shutil.ignore_patterns("__pycache__"))
    messages = copy / "fclseg" / "engine" / "messages.py"
    messages.write_text(re.sub(r"(?m)^FORMAT = \d+", "FORMAT = 999", messages.read_text()))
    _restart(bench, SITE, PYTHONPATH=str(copy))
    until(lambda: "format 999" in _statuses(bench, run), "the other version is refused")
    _restart(bench, SITE)
    return "installed the right version"


def late_joiner(bench: FaultBench, run: str) -> str:
    bench.begin(LATE)
    return NOTHING


def same_site_twice(bench: FaultBench, run: str) -> str:
    """A copy of the site's kit is started on another machine for 30 seconds."""
    copy = bench.out / "copied-kit"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(bench.federation.kit(SITE), copy, ignore=shutil.ignore_patterns("*.fl", "runs", "log.*"))
    bench.federation.start("copy", copy)
    time.sleep(30)
    bench.federation.stop("copy")
    return "stopped the copy after 30 s"


def same_run_twice(bench: FaultBench, run: str) -> str:
    """The lead submits the run once more while it is running."""
    second = bench.submit(run)
    until(lambda: "in use by process" in bench.federation.log(SERVER), "the second job is refused")
    until(lambda: "FINISHED" in bench.meta(second), "the second job ends")
    return NOTHING


def slow_start(bench: FaultBench, run: str) -> str:
    """The site starts while it cannot reach the server, for longer than NVFlare's own patience of 30 s."""
    bench.links[SITE].cut()
    _restart(bench, SITE)
    time.sleep(45)
    bench.links[SITE].heal()
    return NOTHING


def _restart(bench: FaultBench, party: str, **environment: str) -> None:
    bench.halt(party)
    bench.begin(party, **environment)


def _statuses(bench: FaultBench, run: str) -> str:
    return " ".join(report["status"] for record in bench.rounds(run) for report in record["sites"].values())


CASES: dict[str, Case] = {
    "site-job": kill(SITE, "job"),
    "site-parent": kill(SITE, "parent"),
    "site-both": kill(SITE, "parent", "job"),
    "server-job": kill(SERVER, "job"),
    "server-parent": kill(SERVER, "parent"),
    "server-both": kill(SERVER, "parent", "job"),
    "network-drop": cable(30, "cut"),
    "black-hole": cable(45, "swallow"),
    "stopped": stopped,
    "disk-full-site": disk_full(SITE),
    "disk-full-server": disk_full(SERVER),
    "clock-skew": clock_skew,
    "other-version": other_version,
    "late-joiner": late_joiner,
    "two-sites-one-name": same_site_twice,
    "two-runs-one-name": same_run_twice,
    "slow-start": slow_start,
    "truncated-state": damage_cases.truncated_state,
    "flipped-bit": damage_cases.flipped_bit,
    "second-server": damage_cases.second_server,
    "added-patient": damage_cases.added_patient,
    "join-through-a-pipe": damage_cases.join_through_a_pipe,
    "complete-run-again": damage_cases.complete_run_again,
}
