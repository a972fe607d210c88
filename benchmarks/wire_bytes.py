"""Table of job and codec: bytes per round and site at the paper's network size, error and time of the codec.

    python benchmarks/wire_bytes.py [--jobs fcl fclopt fclopt_dp] [--codecs plain lossless 8bit tiny] [--sites 3]

Every row is a run with NVFlare's simulator. One site in three is absent in each round, and every second round is a
calibration, so sites also catch up on what they missed. The networks are those of the `paper` preset; images are tiny
and few, because only bytes matter here. Bytes are means over the rounds and sites that took part. Error and time are
those of encoding and decoding the update of an online network and its predictor after three rounds of training.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codec_costs import code
from codec_rates import update

from fclseg.cli import main as fclseg
from fclseg.federation.codecs.presets import CODECS, PLAIN
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import full_name, get_preset

JOBS = Path(__file__).parents[1] / "jobs"
FCL_MEGABYTES = 124.2
"""Of the paper's FCL per round and site, with ten sites."""
TINY = {"images.size": 32, "view_size": 32, "pixel_scale": 5.0, "batch_size": 8}
COLUMNS = ("job", "codec", "payload up", "down", "wire up", "down", "wire / payload", "FCL = 1", "error", "seconds")


@dataclass(frozen=True)
class Traffic:
    """Megabytes per round and site."""

    payload_up: float
    payload_down: float
    wire_up: float
    wire_down: float

    @property
    def payload(self) -> float:
        return self.payload_up + self.payload_down

    @property
    def wire(self) -> float:
        return self.wire_up + self.wire_down


def traffic(records: Sequence[dict]) -> Traffic:
    """Means over all sites that were asked in the rounds after the first, in which nothing new comes down."""
    counts = [site for record in records[1:] for site in record["bytes"].values()]
    payload = {way: sum(sum(one[way]["payload"].values()) for one in counts) for way in ("up", "down")}
    wire = {way: sum(one[way]["wire"] for one in counts) for way in ("up", "down")}
    scale = 1e-6 / len(counts)
    return Traffic(payload["up"] * scale, payload["down"] * scale, wire["up"] * scale, wire["down"] * scale)


def run(job: str, codec: str, data: Path, arguments: argparse.Namespace, runs: Path) -> Traffic:
    name = f"{job}-{codec}"
    command = ["pretrain", "--job", str(JOBS / job), "--data", str(data), "--sites", str(arguments.sites)]
    command += ["--preset", "paper", "--rounds", str(arguments.rounds), "--runs", str(runs), "--name", name]
    command += ["--codec", codec, "--fraction", "0.67"]
    for setting, value in {**TINY, "calibration_rounds": 2}.items():
        command += ["--set", f"{setting}={value}"]
    if fclseg(command):
        raise SystemExit(1)
    lines = (runs / name / "rounds.jsonl").read_text().splitlines()
    return traffic([json.loads(line) for line in lines])


def cost(names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Squared error relative to the squared update, and seconds, by codec."""
    before, after = update(get_preset("paper", **{full_name(name): value for name, value in TINY.items()}), rounds=3)
    found = {PLAIN: (0.0, 0.0)}
    for name in names:
        if name != PLAIN:
            started = time.process_time()
            _, error = code(CODECS[name].networks, before, after)
            found[name] = error, time.process_time() - started
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", default=["fcl", "fclopt", "fclopt_dp"])
    parser.add_argument("--codecs", nargs="+", default=[PLAIN, *CODECS], choices=[PLAIN, *CODECS])
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    costs = cost(arguments.codecs)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_phantom(data, patients=2 * arguments.sites, frames=2)
        for job in arguments.jobs:
            for codec in arguments.codecs:
                one, (error, seconds) = run(job, codec, data, arguments, Path(folder)), costs[codec]
                print(
                    f"| `{job}` | `{codec}` | {one.payload_up:.2f} | {one.payload_down:.2f} | {one.wire_up:.2f} | "
                    f"{one.wire_down:.2f} | {one.wire / one.payload:.3f} | {one.payload / FCL_MEGABYTES:.4f} | "
                    f"{error:.2g} | {seconds:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
