"""Error of the predicted distance d~ against the target networks that are uploaded for it.

    python benchmarks/calibration.py [--records rounds.jsonl] [--data FOLDER] [--sites 3] [--rounds 40] [--preset small]

One run of ``fclopt_dp`` that calibrates in every round knows the exact distance in every round. On what its sites
measured, the server's predictions are then replayed for each R, and d~ is compared with the exact distance.
``--records`` takes the lines of an earlier run with ``calibration_rounds=1``.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from recorded_run import add_options, read_records, recorded_run

from fclseg.errors import FCLSegError
from fclseg.federation.distance import DistancePredictor
from fclseg.methods.exchange import CALIBRATION, crosses

INTERVALS = (1, 2, 5, 10)


def replay(records: list[dict], every: int) -> tuple[list[int], list[float]]:
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
        if crosses(CALIBRATION, number, every):
            uploads.append(number)
        trained = [site for site, report in record["sites"].items() if report["status"] == "ok"]
    return uploads, errors


def report(records: list[dict], intervals: Iterable[int]) -> None:
    if any(record["d"] is None for record in records):
        raise FCLSegError("the run did not calibrate in every round: give one with --set calibration_rounds=1")
    for every in intervals:
        uploads, errors = replay(records, every)
        print(
            f"R = {every}: targets up in {len(uploads)} of {len(records)} rounds "
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
    report(records, INTERVALS)


if __name__ == "__main__":
    main()
