"""Memory and threads of a long run: a server and sites as real processes, sampled after every round.

    python benchmarks/soak.py --out DIR [--rounds 200] [--job fclopt_dp]

Networks and images are tiny, because what grows per round does not depend on their size. Prints, for the processes of
the server and of one site, memory and threads at some rounds and their growth per round over the second half of the run
(a least-squares line), where caches and pools have been filled.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import psutil

sys.path[:0] = [str(Path(__file__).parents[1] / "poc"), str(Path(__file__).parent)]

from fault_bench import SITES, FaultBench, until  # noqa: E402
from parties import SERVER  # noqa: E402

TINY = {"networks.channels": [4, 8], "images.size": 32, "images.pixel_scale": 5.0, "pretraining.batch_size": 8}
WATCHED = {"server job": (SERVER, "job"), "server": (SERVER, "parent")}
WATCHED |= {"site job": (SITES[0], "job"), "site": (SITES[0], "parent")}


def sample(processes: dict[str, psutil.Process]) -> dict[str, list[float]]:
    """Megabytes and threads of each process."""
    return {name: [one.memory_info().rss / 1e6, one.num_threads()] for name, one in processes.items()}


def soak(bench: FaultBench, rounds: int, job: str) -> list[dict]:
    run = f"soak-{time.time():.0f}"
    bench.submit(run, rounds=rounds, changes=TINY, job=job)
    until(lambda: bench.rounds(run), "the first round")
    processes = {name: bench.processes(party, kind)[0] for name, (party, kind) in WATCHED.items()}
    samples: list[dict] = []
    while not bench.complete(run):
        done = len(bench.rounds(run))
        if not samples or done > samples[-1]["round"]:
            try:
                samples.append({"round": done, **sample(processes)})
            except psutil.NoSuchProcess:  # the run has just ended
                break
            with open(bench.out.parent / "samples.jsonl", "a") as file:
                file.write(json.dumps(samples[-1]) + "\n")
        time.sleep(0.2)
    return samples


def report(samples: list[dict]) -> str:
    shown = [samples[round(share * (len(samples) - 1))] for share in (0, 0.1, 0.25, 0.5, 0.75, 1)]
    lines = ["| process | " + " | ".join(f"round {one['round']}" for one in shown) + " | per round, second half |"]
    lines.append("|---" * (len(shown) + 2) + "|")
    later = samples[len(samples) // 2 :]
    steps = np.array([one["round"] for one in later], dtype=float)
    for name in WATCHED:
        cells = [f"{one[name][0]:.0f} MB, {one[name][1]:.0f} threads" for one in shown]
        growth = [np.polyfit(steps, [one[name][index] for one in later], 1)[0] for index in (0, 1)]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {growth[0]:+.3f} MB, {growth[1]:+.3f} threads |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=200, metavar="R")
    parser.add_argument("--job", default="fclopt_dp")
    arguments = parser.parse_args()
    bench = FaultBench(arguments.out.absolute() / f"federation-{time.time():.0f}")
    try:
        bench.prepare()
        bench.start()
        print(report(soak(bench, arguments.rounds, arguments.job)))
    finally:
        bench.stop()


if __name__ == "__main__":
    main()
