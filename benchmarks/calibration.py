"""Error of the predicted distance d~ against the target networks that are uploaded for it, fixed and adaptive R.

    python benchmarks/calibration.py [--records rounds.jsonl] [--data FOLDER] [--sites 3] [--rounds 40] [--preset small]

One run of ``fclopt_dp`` that calibrates in every round knows the exact distance in every round. On what its sites
measured, the server's decisions are then replayed for each R and each tolerance (``calibration_tolerance``), and d~ is
compared with the exact distance. ``--records`` takes the lines of an earlier run with ``calibration_rounds=1``.
"""

import argparse
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fclseg.cli import main as fclseg
from fclseg.data.phantom import write_phantom
from fclseg.errors import FCLSegError
from fclseg.federation.distance import DistancePredictor
from fclseg.federation.exchange import CALIBRATION, crosses

ROOT = Path(__file__).parents[1]
INTERVALS = (1, 2, 5, 10)
TOLERANCES = (None, 0.1, 0.03, 0.01, 0.003)


def replay(records: list[dict], every: int, tolerance: float | None) -> tuple[list[int], list[float]]:
    """The rounds in which targets go up, and the relative error of d~ in each round but the first."""
    predictor, uploads, errors = DistancePredictor(), [], []
    trained: list[str] | None = None
    for record in records:
        number, exact = record["round"], record["d"]
        if number == 0 or number - 1 in uploads:
            predictor.calibrate(exact)
        predicted = predictor.predict(record["distances"], trained)
        if exact:
            errors.append(abs(predicted / exact - 1))
        worth = tolerance is None or predictor.likely_error(every) > tolerance
        if crosses(CALIBRATION, number, every, worth):
            uploads.append(number)
        trained = [site for site, report in record["sites"].items() if report["status"] == "ok"]
    return uploads, errors


def report(records: list[dict], intervals: Iterable[int], tolerances: Iterable[float | None]) -> None:
    if any(record["d"] is None for record in records):
        raise FCLSegError("the run did not calibrate in every round: give one with --set calibration_rounds=1")
    for every in intervals:
        for tolerance in tolerances:
            uploads, errors = replay(records, every, tolerance)
            name = "fixed" if tolerance is None else f"tolerance {tolerance:g}"
            print(
                f"R = {every}, {name}: targets up in {len(uploads)} of {len(records)} rounds "
                f"({len(uploads) / len(records):.3f} per round), error of d~: mean {sum(errors) / len(errors):.2e}, "
                f"largest {max(errors):.2e}",
                flush=True,
            )


def run(arguments: argparse.Namespace) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or Path(folder) / "data"
        if arguments.data is None:
            write_phantom(data, patients=3 * arguments.sites)
        command = ["pretrain", "--job", str(ROOT / "jobs" / "fclopt_dp"), "--data", str(data), "--runs", folder]
        command += ["--sites", str(arguments.sites), "--preset", arguments.preset, "--rounds", str(arguments.rounds)]
        command += ["--name", "run", "--set", "calibration_rounds=1"]
        for change in arguments.set:
            command += ["--set", change]
        if fclseg(command):
            raise SystemExit(1)
        return read(Path(folder) / "run" / "rounds.jsonl")


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, metavar="FILE", help="rounds.jsonl of an earlier run, instead of one")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    records = read(arguments.records) if arguments.records else run(arguments)
    report(records, INTERVALS, TOLERANCES)


if __name__ == "__main__":
    main()
