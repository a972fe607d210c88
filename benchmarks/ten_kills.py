"""Kills a run with -9 at random moments, restarts it each time, and compares it with an uninterrupted run.

    python benchmarks/ten_kills.py [--kills 10] [--rounds 30] [--seed 0]

Prints one line: the final weights are identical to the last bit, or not.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from fclseg.phantom.dataset import write_phantom

ROOT = Path(__file__).parents[1]


def start(folder: Path, data: Path, rounds: int) -> subprocess.Popen:
    environment = {
        **os.environ,
        "FCLSEG_DATA": str(data),
        "FCLSEG_ROUNDS": str(rounds),
        "FCLSEG_RUNS": str(folder / "runs"),
    }
    command = [Path(sys.executable).with_name("nvflare"), "simulator", ROOT / "jobs" / "fclopt_dp"]
    with open(folder / "log.txt", "a") as log:
        return subprocess.Popen(
            [*command, "-w", folder / "workspace", "-n", "2", "-t", "2"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def finished_rounds(folder: Path) -> int:
    path = folder / "runs" / "fclopt_dp-demo" / "rounds.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def identical(a: Path, b: Path) -> bool:
    """Whether the last checkpoints of two folders have the same bits."""
    first, second = (
        load_file(sorted((folder / "runs" / "fclopt_dp-demo" / "checkpoints").glob("*"))[-1]) for folder in (a, b)
    )
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        data, alone, killed = (Path(name) / part for part in ("data", "alone", "killed"))
        write_phantom(data, patients=4, frames=4)
        for folder in (alone, killed):
            folder.mkdir()
        if start(alone, data, arguments.rounds).wait():
            raise SystemExit((alone / "log.txt").read_text()[-3000:])
        found = []
        for _ in range(arguments.kills):
            began = time.monotonic()
            process, before = start(killed, data, arguments.rounds), finished_rounds(killed)
            # Some kills happen while the run starts, most of them once it is running again.
            while moments.random() > 0.005 and finished_rounds(killed) == before and time.monotonic() - began < 120:
                time.sleep(0.5)
            time.sleep(moments.uniform(0, 4))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            found.append(finished_rounds(killed))
        if start(killed, data, arguments.rounds).wait():
            raise SystemExit((killed / "log.txt").read_text()[-3000:])
        same = identical(alone, killed)
        print(f"{arguments.kills} kills (finished rounds at each: {found}): final weights identical: {same}")
        raise SystemExit(not same)


if __name__ == "__main__":
    main()
