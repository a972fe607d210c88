"""``make mutants``: apply every deliberate fault, one by one, to a copy of the repository, and see that tests fail.

A mutant's own tests are run first, and the whole fast suite only if they let it live. The work tree is never touched.
"""

import argparse
import csv
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from catalogue import ROOT, Mutant, read_mutants

CACHES = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache")
RESULTS = {"demo_output", "runs", "studies"}
"""Folders that commands write into the repository. The package has a folder ``runs``, too."""

COLUMNS = ("mutant", "file", "verdict", "by", "seconds")
"""Of the table that ``--out`` writes. "Its tests" are those that the catalogue names for a mutant."""
KILLED, SURVIVED, BROKEN = "killed", "SURVIVED", "BROKEN"
TESTS_FAILED = 1
"""pytest's exit code when tests ran and some failed; any other but 0 says that they did not run as they should."""
PATIENCE, LONG_PATIENCE = 600, 7200
"""Seconds until tests count as hanging: those of one mutant, and the whole suite, which takes long when busy."""

SLOW_IMPORTS = ["torch", "monai.bundle", "monai.networks.nets", "monai.losses", "monai.metrics", "monai.inferers"]
SLOW_IMPORTS += ["ignite.engine", "nvflare.apis.impl.controller", "nvflare.app_common.executors.learner_executor"]
SLOW_IMPORTS += ["scipy.stats", "scipy.ndimage", "matplotlib.figure", "nibabel", "jinja2", "pytest"]
os.environ["OMP_NUM_THREADS"] = "1"  # also because a process with running threads cannot be forked
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(SLOW_IMPORTS)
"""Importing these takes longer than most of the tests, so it is done once and every run of pytest is forked from it."""


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    state: str
    by: str
    seconds: float


def left_out(folder: str, names: list[str]) -> set[str]:
    """What is not copied of a folder of the repository."""
    return CACHES(folder, names) | (RESULTS if Path(folder) == ROOT else set())


def pytest(root: Path, patience: int, *arguments: str) -> int:
    """Run tests of a copy against the package of that copy; the exit code of pytest."""
    output = root.with_suffix(".log")
    process = FORKS.Process(target=_pytest, args=(root, output, list(arguments)))
    process.start()
    process.join(patience)
    if process.is_alive():
        process.kill()
        process.join()
        raise TimeoutError
    if process.exitcode not in (0, TESTS_FAILED):
        print(output.read_text(errors="replace")[-3000:], file=sys.stderr)
    return process.exitcode


def _pytest(root: Path, output: Path, arguments: list[str]) -> None:
    """In a process that has imported everything slow, and nothing of ours."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(root)
    os.environ["PYTHONPATH"] = str(root / "custom")
    sys.path.insert(0, str(root / "custom"))
    import pytest

    sys.exit(int(pytest.main(["-x", "-p", "no:cacheprovider", *arguments])))


def judge(mutant: Mutant, root: Path, whole_suite: bool) -> Verdict:
    """Apply a mutant, test, and put the file back."""
    path = root / mutant.file
    before, began = path.read_text(encoding="utf-8"), time.monotonic()
    mutant.apply(root)
    named = [f"tests/{name}" for name in mutant.tests]
    stages = [("its tests", PATIENCE, named)] + ([("the whole suite", LONG_PATIENCE, [])] if whole_suite else [])
    try:
        for by, patience, tests in stages:
            try:
                code = pytest(root, patience, *tests)
            except TimeoutError:
                return Verdict(mutant, KILLED, "time-out", time.monotonic() - began)
            if code:
                state = KILLED if code == TESTS_FAILED else BROKEN
                return Verdict(mutant, state, by if state == KILLED else f"exit code {code}", time.monotonic() - began)
        return Verdict(mutant, SURVIVED, "-", time.monotonic() - began)
    finally:
        path.write_text(before, encoding="utf-8")


def run_all(mutants: list[Mutant], jobs: int, whole_suite: bool) -> list[Verdict]:
    """Judge all mutants, ``jobs`` at a time, each in a copy of the repository."""
    with tempfile.TemporaryDirectory() as folder:
        roots = [Path(folder) / str(number) for number in range(jobs)]
        copies: Queue[Path] = Queue()
        for root in roots:
            copies.put(shutil.copytree(ROOT, root, symlinks=True, ignore=left_out))
        check_healthy(mutants, roots)

        def one(mutant: Mutant) -> Verdict:
            root = copies.get()
            try:
                verdict = judge(mutant, root, whole_suite)
            finally:
                copies.put(root)
            print(f"{verdict.state:9}{verdict.seconds:6.0f} s  {mutant.name}", flush=True)
            return verdict

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, mutants))


def check_healthy(mutants: list[Mutant], roots: list[Path]) -> None:
    """Without a fault all of these tests pass; otherwise a failure would prove nothing. Each copy runs its share."""
    named = sorted({name.partition("::")[0] for mutant in mutants for name in mutant.tests})
    print(f"{len(mutants)} mutants; first their {len(named)} test files without any of them", flush=True)
    shares = [[f"tests/{name}" for name in named[number :: len(roots)]] for number in range(len(roots))]
    with ThreadPoolExecutor(len(roots)) as pool:
        codes = list(pool.map(lambda root, share: share and pytest(root, LONG_PATIENCE, *share), roots, shares))
    if failed := [root for root, code in zip(roots, codes, strict=True) if code]:
        print(failed[0].with_suffix(".log").read_text(errors="replace")[-3000:], file=sys.stderr)
        sys.exit("the tests fail without any mutant: make them pass first")


def write_table(path: Path, verdicts: list[Verdict]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for one in verdicts:
            table.writerow([one.mutant.name, one.mutant.file, one.state, one.by, f"{one.seconds:.0f}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of mutants (default: all)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the verdicts as CSV")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time (default: 1)")
    parser.add_argument("--named-only", action="store_true", help="leave out the whole suite for those that survive")
    arguments = parser.parse_args()
    mutants = [
        one for one in read_mutants() if not arguments.names or any(name in one.name for name in arguments.names)
    ]
    if faults := [fault for mutant in mutants if (fault := mutant.fault(ROOT))]:
        print("\n".join(faults), file=sys.stderr)
        return 1
    verdicts = run_all(mutants, arguments.jobs, whole_suite=not arguments.named_only)
    killed, total = sum(one.state == KILLED for one in verdicts), sum(one.seconds for one in verdicts)
    print(f"{killed} of {len(verdicts)} killed in {total:.0f} s")
    if arguments.out:
        write_table(arguments.out, verdicts)
    return 0 if all(one.state == KILLED for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
