"""How well DP predicts the distance and PTNU the target network, in a real federated run.

    python benchmarks/target_prediction.py [--data FOLDER] [--sites 4] [--rounds 16] [--fraction 1.0] [--preset small]

Per round: exact d, predicted d~, alpha, and over the sites the mean of |predicted - true global target| and of
|own - true global target|, both relative to |online - true target|. Then the same by the number of rounds a site was
absent (with --fraction 0.5), and one line with the mean relative error of d~.
"""

import argparse
from collections import defaultdict

from recorded_run import add_options, recorded_run


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def absences(records: list[dict]) -> dict[int, list[dict[str, float]]]:
    """Errors by the number of rounds that a site had missed."""
    last: dict[str, int] = {}
    found: dict[int, list[dict[str, float]]] = defaultdict(list)
    for record in records:
        for site, errors in record["diagnostics"]["target_errors"].items():
            found[record["round"] - last.get(site, -1) - 1].append(errors)
        last |= {site: record["round"] for site, report in record["sites"].items() if report["status"] == "ok"}
    return dict(sorted(found.items()))


def report(records: list[dict]) -> None:
    print("round  exact d     d~          alpha    error of d~  |predicted-true|  |own-true|  (of |online-true|)")
    relative = []
    for record in records:
        exact, predicted = record["diagnostics"].get("d"), record["d_predicted"]
        errors = record["diagnostics"]["target_errors"].values()
        if not exact:
            continue
        relative.append(abs(predicted / exact - 1))
        given, own = (mean([error[name] for error in errors]) for name in ("given", "own"))
        known = " calibrated" if record["d"] is not None else ""
        print(
            f"{record['round']:5d}  {exact:.4e}  {predicted:.4e}  {record['alpha']:.4f}  {relative[-1]:11.1e}  "
            f"{given:16.4f}  {own:10.4f}{known}"
        )
    for missed, errors in absences(records).items():
        given, own = (mean([error[name] for error in errors]) for name in ("given", "own"))
        print(f"absent for {missed} rounds ({len(errors)} times): predicted {given:.4f}, own stale target {own:.4f}")
    predicted_only = [error for error, record in zip(relative, records[1:], strict=False) if record["d"] is None]
    print(
        f"mean relative error of d~: {mean(predicted_only):.1e} over {len(predicted_only)} rounds without calibration"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, sites=4, rounds=16)
    parser.add_argument("--fraction", type=float, default=1.0)
    arguments = parser.parse_args()
    report(recorded_run(arguments, "--fraction", str(arguments.fraction), "--diagnostics"))


if __name__ == "__main__":
    main()
