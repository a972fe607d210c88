"""Compares the bytes on the wire with the payload that the paper counts, per direction, at the paper's network size.

    python benchmarks/wire_bytes.py [--jobs fclopt fclopt_ptnu fclopt_dp fedbyol] [--codec C] [--sites 2] [--rounds 3]

The networks are those of the `paper` preset; images are tiny and few, because only bytes matter here. Prints one line
per job and direction.
"""

import argparse
import json
import tempfile
from pathlib import Path

from fclseg.cli import main as fclseg
from fclseg.data.phantom import write_phantom

ROOT = Path(__file__).parents[1]
TARGET = 0.01
TINY = ("image_size=32", "view_size=32", "pixel_scale=5", "batch_size=8", "calibration_rounds=2")


def measure(job: str, codec: str | None, data: Path, sites: int, rounds: int, runs: Path) -> dict[str, tuple[int, int]]:
    """(payload, wire) by direction, over all sites and rounds."""
    command = ["pretrain", "--job", str(ROOT / "jobs" / job), "--data", str(data), "--sites", str(sites)]
    command += ["--preset", "paper", "--rounds", str(rounds), "--runs", str(runs), "--name", job]
    command += ["--codec", codec] if codec else []
    for change in TINY:
        command += ["--set", change]
    if fclseg(command):
        raise SystemExit(1)
    totals = {"up": [0, 0], "down": [0, 0]}
    for line in (runs / job / "rounds.jsonl").read_text().splitlines():
        for site in json.loads(line)["bytes"].values():
            for way, counts in site.items():
                totals[way][0] += sum(counts["payload"].values())
                totals[way][1] += counts["wire"]
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", nargs="+", default=["fclopt", "fclopt_ptnu", "fclopt_dp", "fedbyol"])
    parser.add_argument(
        "--codec", help="codec instead of the jobs' own; NVFlare's overhead matters more for smaller messages"
    )
    parser.add_argument("--sites", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_phantom(data, patients=2 * arguments.sites, frames=2)
        for job in arguments.jobs:
            for way, (payload, wire) in measure(
                job, arguments.codec, data, arguments.sites, arguments.rounds, Path(folder)
            ).items():
                extra = wire / payload - 1
                verdict = "ok" if extra <= TARGET else "ABOVE TARGET"
                print(
                    f"{job} {way}: payload {payload / 1e6:.2f} MB, wire {wire / 1e6:.2f} MB, "
                    f"{extra:+.2%} (target {TARGET:.0%}: {verdict})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
