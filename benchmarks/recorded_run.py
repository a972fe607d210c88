"""One run of ``fclopt_dp``, for benchmarks that look at the records of its rounds."""

import argparse
import json
import tempfile
from pathlib import Path

from fclseg.cli import main as fclseg
from fclseg.phantom.dataset import write_phantom

ROOT = Path(__file__).parents[1]


def add_options(parser: argparse.ArgumentParser, sites: int, rounds: int) -> None:
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sites", type=int, default=sites)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")


def recorded_run(arguments: argparse.Namespace, *more: str) -> list[dict]:
    """Pre-train with these options and ``more`` of them. Returns the lines of ``rounds.jsonl``."""
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or Path(folder) / "data"
        if arguments.data is None:
            write_phantom(data, patients=3 * arguments.sites)
        command = ["pretrain", "--job", str(ROOT / "jobs" / "fclopt_dp"), "--data", str(data), "--runs", folder]
        command += ["--sites", str(arguments.sites), "--preset", arguments.preset, "--rounds", str(arguments.rounds)]
        command += ["--name", "run", *more]
        for change in arguments.set:
            command += ["--set", change]
        if fclseg(command):
            raise SystemExit(1)
        return read_records(Path(folder) / "run" / "rounds.jsonl")


def read_records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]
