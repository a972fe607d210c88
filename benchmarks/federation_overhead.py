"""Measures the cost of federation: wall time of a run over the sites' training time, and peak memory of both sides.

    python benchmarks/federation_overhead.py [--data FOLDER] [--sites 4] [--rounds 5] [--preset small]

All sites run at the same time (-t = -n). With few cores, the sum of their training times divided by the number of cores
is therefore the lower bound. Prints one line.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path

from fclseg.cli import main as fclseg
from fclseg.flare.patches import site_starter
from fclseg.phantom.dataset import write_phantom

ROOT = Path(__file__).parents[1]


class PeakMemory(threading.Thread):
    """Watches the resident memory of the simulator's processes (Linux)."""

    def __init__(self):
        super().__init__(daemon=True)
        self.server = self.site = 0.0
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.5):
            for process in Path("/proc").glob("[0-9]*"):
                self._look_at(process)

    def _look_at(self, process: Path) -> None:
        try:
            command = (process / "cmdline").read_text()
            pages = int((process / "statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return
        size = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        if site_starter.__name__ in command:
            self.site = max(self.site, size)
        elif "simulator.simulator" in command:
            self.server = max(self.server, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", default="fclopt_dp")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preset", default="small")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or Path(folder) / "data"
        if arguments.data is None:
            write_phantom(data, patients=3 * arguments.sites)
        command = ["pretrain", "--job", str(ROOT / "jobs" / arguments.job), "--data", str(data), "--runs", folder]
        command += ["--sites", str(arguments.sites), "--preset", arguments.preset, "--rounds", str(arguments.rounds)]
        memory, started = PeakMemory(), time.perf_counter()
        memory.start()
        if fclseg([*command, "--name", "run"]):
            raise SystemExit(1)
        wall = time.perf_counter() - started
        memory.stopped.set()
        records = [json.loads(line) for line in (Path(folder) / "run" / "rounds.jsonl").read_text().splitlines()]
    training = sum(site["seconds"] for record in records for site in record["sites"].values())
    rounds = sum(record["seconds"] for record in records)
    cores = min(os.cpu_count() or 1, arguments.sites)
    print(
        f"federation overhead, {arguments.job} {arguments.preset}, {arguments.sites} sites, {len(records)} rounds, "
        f"{cores} cores: wall {wall:.0f} s / training {training:.0f} s = {wall / training:.2f}; rounds "
        f"without start-up {rounds:.0f} s / (training / cores) = {rounds * cores / training:.2f}; "
        f"peak memory server {memory.server:.0f} MB, site {memory.site:.0f} MB"
    )


if __name__ == "__main__":
    main()
