"""How well DP predicts the distance and PTNU the target network, in a real federated run.

    python benchmarks/target_prediction.py [--data FOLDER] [--sites 4] [--rounds 16] [--fraction 1.0] [--preset small]

Per round: exact d, predicted d~, alpha, and over the sites the mean of |predicted - true global target| and of
|own - true global target|, both relative to |online - true target|. Then the same by the number of rounds a site was
absent (with --fraction 0.5), and one line with the mean relative error of d~.
"""

import argparse
import math
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from fclseg.anatomy.folders import read_folder
from fclseg.data.sites import Splits
from fclseg.engine.in_process import open_in_process
from fclseg.engine.messages import PRETRAIN_TASK, Message
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.federation.averaging import WeightedMean
from fclseg.federation.distance import distance
from fclseg.federation.states import Arrays, parameter_names, to_arrays
from fclseg.phantom.dataset import write_phantom


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


def watched_run(data: Path, sites: int, settings: RunSettings) -> list[dict]:
    """The lines of a run in this process. Each says how far the sites' targets were from the true global one: the mean
    of the targets that all sites had after the round before."""
    with tempfile.TemporaryDirectory() as folder:
        split, names = Path(folder) / "splits.json", [f"site-{number + 1}" for number in range(sites)]
        Splits.make(sorted({volume.patient for volume in read_folder(data)}), sites, folds=2).save(split)
        shared = {"data": str(data), "splits": str(split)}
        run = open_in_process(settings, RunFolder(Path(folder) / settings.run), names, shared)
        records, exchange = [], run._exchange
        truth: dict[int, Arrays] = {}
        errors: dict[str, dict[str, float]] = {}
        trained: dict[str, tuple[Arrays, int]] = {}

        def watch(site: str, task: str, message: Message) -> Message:
            number, own = message.round_number, run.sites[site].memory.load_before(message.round_number)
            before = to_arrays(own.component("target")) if own else None
            result = exchange(site, task, message)
            if task == PRETRAIN_TASK:
                online = message.components["online"]
                trained[site] = to_arrays(run.sites[site].method.send("target")), result.meta["samples"]
                if number in truth and before and (scale := norm(online, truth[number])):
                    given = message.components["target"]
                    known = {"given": given, "own": before}
                    errors[site] = {name: norm(one, truth[number]) / scale for name, one in known.items()}
            return result

        def after(record: dict) -> None:
            number, online = record["round"], run.loop.model.means["online"]
            record["diagnostics"] = {"target_errors": dict(errors), "d": exact.pop(number, None)}
            mean_target = WeightedMean("target")
            for site, (state, samples) in trained.items():
                mean_target.add(state, samples, site)
            truth[number + 1] = mean_target.result()
            exact[number + 1] = distance(online, truth[number + 1])
            errors.clear()
            trained.clear()
            records.append(record)

        exact: dict[int, float] = {}
        run._exchange = watch
        run.run(after_round=after)
        return records


def norm(a: Arrays, b: Arrays) -> float:
    """Euclidean norm of the difference between the parameters of two networks."""
    return math.sqrt(sum(float(((a[name].astype(np.float64) - b[name]) ** 2).sum()) for name in parameter_names(b)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="default: a phantom")
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--fraction", type=float, default=1.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    values = {"job": "fclopt_dp", "preset": arguments.preset, "rounds": arguments.rounds, "run": "run"}
    settings = RunSettings.read({**values, "fraction": arguments.fraction}, {})
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or Path(folder) / "phantom"
        if arguments.data is None:
            write_phantom(data, patients=3 * arguments.sites, sites=arguments.sites)
        report(watched_run(data, arguments.sites, settings))


if __name__ == "__main__":
    main()
