"""Measures what happens when parts of a real federation fail: mutual-TLS processes on this machine, disturbed in a run.

    python benchmarks/fault_matrix.py --out DIR                        every case that has not been run three times yet
    python benchmarks/fault_matrix.py --out DIR --cases site-job,stopped --times 1
    python benchmarks/fault_matrix.py --out DIR --write docs/results/faults.csv      only write the table

Each result is one line of DIR/results.jsonl, so the matrix can be run case by case and continued. For each case: what
the operator had to do, the seconds from the fault to the next finished round, to the site's next valid answer and to
the end of the run, and whether the encoder equals that of a run without faults. A round that continued without a site
gives other numbers.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from fclseg.errors import FCLSegError

sys.path[:0] = [str(Path(__file__).parents[1] / "poc"), str(Path(__file__).parent)]

from fault_bench import ROUNDS, FaultBench, until  # noqa: E402
from fault_cases import CASES, NOTHING, SITE  # noqa: E402

FAULT_AFTER = 1
REFERENCE, LONG_REFERENCE = "no fault", "no fault, long"
LONG = dict.fromkeys((LONG_REFERENCE, "late-joiner", "two-runs-one-name"), 60)
"""Rounds of runs that must last until another process has started."""
COLUMNS = ("fault", "times", "operator", "next round, s", "site back, s", "complete, s", "missed", "bit-identical")


def measure(bench: FaultBench, name: str) -> dict[str, object]:
    """One run with one fault."""
    run = f"{name.replace(', ', '-').replace(' ', '-')}-{time.time():.0f}"
    operator = NOTHING
    # NVFlare's command returns seconds after the job has started. The run may be over by then.
    submitting = threading.Thread(target=bench.submit, args=[run], kwargs={"rounds": LONG.get(name, ROUNDS)})
    submitting.start()
    until(lambda: len(bench.rounds(run)) >= FAULT_AFTER, "the first rounds")
    before, struck = len(bench.rounds(run)), time.monotonic()
    times: dict[str, float] = {}
    if name in CASES:
        operator = _watched(bench, run, name, before, times)
    until(lambda: bench.complete(run), "the run is complete")
    times["complete"] = time.monotonic() - struck
    submitting.join()
    records = bench.rounds(run)
    missed = sum(report["status"] != "ok" for record in records for report in record["sites"].values())
    found = {"case": name, "operator": operator, "missed": missed, "sha": bench.digest(run), **times}
    bench.forget(run)
    return found | {"rounds": len(records), "version": _commit()}


def _watched(bench: FaultBench, run: str, name: str, before: int, times: dict[str, float]) -> str:
    """Disturb the run while a thread notes when rounds finish again."""
    struck, done = time.monotonic(), threading.Event()

    def watch() -> None:
        while not done.is_set() or not bench.complete(run):
            later = bench.rounds(run)[before:]
            if later and "next_round" not in times:
                times["next_round"] = time.monotonic() - struck
            if any(one["sites"].get(SITE, {}).get("status") == "ok" for one in later) and "site_back" not in times:
                times["site_back"] = time.monotonic() - struck
            time.sleep(0.2)

    threading.Thread(target=watch, daemon=True).start()
    try:
        return CASES[name](bench, run)
    finally:
        done.set()


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    return done.stdout.strip()


def run_cases(out: Path, names: list[str], times: int) -> None:
    """Run what is missing, each case once before any case is repeated. The federation is started once, and again after
    a case that failed or that changed it."""
    results, bench = out / "results.jsonl", None
    needed = dict.fromkeys(LONG_REFERENCE if name in LONG else REFERENCE for name in names)
    try:
        for name, count in [*((name, 1) for name in needed), *((name, n + 1) for n in range(times) for name in names)]:
            if sum(one["case"] == name and "failed" not in one for one in read(results)) >= count:
                continue
            if bench is None:
                bench = FaultBench(out / f"federation-{time.time():.0f}")
                bench.prepare()
                bench.start()
            try:
                found = measure(bench, name)
            except FCLSegError as error:
                found = {"case": name, "failed": str(error), "version": _commit()}
            print(json.dumps(found), flush=True)
            with open(results, "a") as file:
                file.write(json.dumps(found) + "\n")
            if "failed" in found or name in ("late-joiner", "clock-skew"):
                bench.stop()
                bench = None
    finally:
        if bench:
            bench.stop()


def read(results: Path) -> list[dict]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def table(results: list[dict]) -> list[list[str]]:
    reference = {one["sha"] for one in results if one["case"] in (REFERENCE, LONG_REFERENCE)}
    rows = [list(COLUMNS)]
    for name in CASES:
        good = [one for one in results if one["case"] == name and "failed" not in one]
        if not good:
            continue
        same = sum(one["sha"] in reference for one in good)
        operator = "; ".join(sorted({one["operator"] for one in good}))
        missed = " ".join(str(one["missed"]) for one in good)
        cells = [name, str(len(good)), operator]
        cells += [*(spread(good, key) for key in ("next_round", "site_back", "complete")), missed]
        rows.append([*cells, f"{same} of {len(good)}"])
    return rows


def spread(results: list[dict], key: str) -> str:
    """The median and the extremes."""
    values = sorted(one[key] for one in results if key in one)
    if not values:
        return "not before the end"
    return f"{statistics.median(values):.0f} ({values[0]:.0f} to {values[-1]:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--cases", default=",".join(CASES), metavar="A,B", help=f"some of {', '.join(CASES)}")
    parser.add_argument("--times", type=int, default=3, metavar="N", help="how often each case is run (default 3)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table as CSV, and run nothing")
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    if arguments.write is None:
        run_cases(out, arguments.cases.split(","), arguments.times)
    rows = table(read(out / "results.jsonl"))
    if arguments.write is None:
        print(*(" | ".join(row) for row in rows), sep="\n")
        return
    with arguments.write.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
