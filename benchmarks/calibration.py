"""Error of the predicted distance d~ against the target networks that are uploaded for it, fixed and adaptive R.

    python benchmarks/calibration.py [--records rounds.jsonl] [--data FOLDER] [--sites 3] [--rounds 40] [--preset small]

One run of ``fclopt_dp`` that calibrates in every round knows the exact distance in every round. On what its sites
measured, the server's decisions are then replayed for each R and each tolerance (``calibration_tolerance``), and d~ is
compared with the exact distance. ``--records`` takes the lines of an earlier run with ``calibration_rounds=1``.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from recorded_run import add_options, read_records, recorded_run

from fclseg.errors import FCLSegError
from fclseg.federation.distance import DistancePredictor
from fclseg.federation.exchange import CALIBRATION, crosses

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, metavar="FILE", help="rounds.jsonl of an earlier run, instead of one")
    add_options(parser, sites=3, rounds=40)
    arguments = parser.parse_args()
    if arguments.records:
        records = read_records(arguments.records)
    else:
        records = recorded_run(arguments, "--set", "calibration_rounds=1")
    report(records, INTERVALS, TOLERANCES)


if __name__ == "__main__":
    main()
