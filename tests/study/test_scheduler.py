"""The scheduler with quick stand-ins for training: order, parallel workers, failures, interruption, estimates."""

import io
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from study_cells import finetuning, pretraining

from fclseg.errors import FCLSegError
from fclseg.study.cache import Cache
from fclseg.study.job_options import FilterSpec, JobOptions
from fclseg.study.progress import Estimate, Progress, duration
from fclseg.study.scheduler import Scheduler, Worker

NOISE = FilterSpec("fclseg.flare.filters.ClipAndNoise", (("clip", 1.0), ("sigma", 0.1)))


def run(cells, tmp_path, execute="quick", workers=2):
    failures = Scheduler(Cache(tmp_path), workers, execute=f"study_cells:{execute}").run(cells)
    log = tmp_path / "log"
    return failures, [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def test_pretraining_comes_first_once_and_workers_have_one_thread(tmp_path):
    first = pretraining()
    cells = [finetuning(fold, "fclopt", first) for fold in range(4)] + [finetuning(9)]
    failures, log = run(cells, tmp_path, "slow")
    assert not failures
    assert sorted(line[0] for line in log[:2]) == ["local", "pre-training"], "what needs none runs beside it"
    assert [line[0] for line in log[2:]] == ["local"] * 4
    assert {line[-1] for line in log} == {"1"}
    assert len({line[-2] for line in log}) == 2, "both workers had something to do"
    assert all(Cache(tmp_path).get(cell.key)["dice"] == 0.5 for cell in [first, *cells])


def test_which_cell_starts_next(tmp_path):
    """NVFlare's filters make a pre-training run alone; a fine-tuning waits for its own and lets others pass."""
    scheduler, first, free = Scheduler(Cache(tmp_path), 2), pretraining(), finetuning(9)
    filtered = replace(first, options=JobOptions.make({}, (NOISE,)))
    needs = finetuning(0, "fclopt", first)
    assert scheduler._next([first, needs, free]) == first
    scheduler.pool = [Worker(None, None, first)]
    assert scheduler._next([needs, free]) == free
    assert scheduler._next([needs]) is None
    assert scheduler._next([filtered, free]) is None
    scheduler.pool = [Worker(None, None, filtered)]
    assert scheduler._next([free]) is None
    scheduler.pool = []
    assert scheduler._next([filtered, free]) == filtered and scheduler._next([needs, free]) == needs


def test_what_is_there_is_not_run_again(tmp_path):
    cells = [finetuning(fold) for fold in range(3)]
    run(cells[:2], tmp_path)
    _, log = run(cells, tmp_path)
    assert sorted(line[-3] for line in log) == ["0", "1", "2"]
    cache = Cache(tmp_path)
    cache.put(finetuning(7, "fclopt", pretraining()).key, {"dice": 1, "seconds": 1})
    _, log = run([finetuning(7, "fclopt", pretraining())], tmp_path)
    assert len(log) == 3, "a pre-training is not needed when all that builds on it is there"


def test_failures_are_named_and_lose_nothing_else(tmp_path):
    cells = [finetuning(fold) for fold in range(5)] + [finetuning(8, "fclopt", pretraining())]
    failures, _ = run(cells, tmp_path, "fragile")
    reasons = {"pre-training" if one.cell.kind == pretraining().kind else one.cell.fold: one.reason for one in failures}
    assert reasons[1] == "this fold has no patients: choose another"
    assert reasons[2].startswith("ZeroDivisionError: a fault (details: ")
    assert "Traceback" in Path(reasons[2].split("details: ")[1].rstrip(")")).read_text()
    assert "ended with code -9" in reasons[3]
    assert reasons["pre-training"] == "no images at site-2"
    assert reasons[8] == "pre-training fclopt (seed 0) failed"
    assert len(failures) == 5
    assert Cache(tmp_path).get(cells[0].key) and Cache(tmp_path).get(cells[4].key)


def test_a_worker_that_cannot_start_is_a_failure_of_its_cell(tmp_path):
    failures = Scheduler(Cache(tmp_path), 1, execute="no_such_module:run").run([finetuning(0)])
    assert [failure.reason for failure in failures] == ["its process ended with code 1 (out of memory?)"]


def test_a_worker_that_dies_while_idle_is_replaced(tmp_path):
    scheduler = Scheduler(Cache(tmp_path), 1, execute="study_cells:quick")
    idle = scheduler._idle_worker()
    idle.process.kill()
    idle.process.join()
    assert scheduler.run([finetuning(0)]) == [] and Cache(tmp_path).get(finetuning(0).key)


def test_only_one_study_at_a_time_fills_a_folder(tmp_path):
    refused = pytest.raises(FCLSegError, match=r"another study is running in .*: wait until it has finished")
    with Cache(tmp_path).filling(), refused, Cache(tmp_path).filling():
        pytest.fail("a second study got in")
    with Cache(tmp_path).filling():
        pass


ENDLESS = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from fclseg.study.cache import Cache
from fclseg.study.scheduler import Scheduler
from study_cells import finetuning
if __name__ == "__main__":
    Scheduler(Cache(Path({root!r})), 2, execute="study_cells:slow").run([finetuning(fold) for fold in range(500)])
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_study_leaves_no_process_and_keeps_what_it_had(tmp_path, how):
    script = tmp_path / "study.py"
    script.write_text(ENDLESS.format(path=sys.path, root=str(tmp_path)))
    study = subprocess.Popen([sys.executable, script], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + 1800
    while len(list(tmp_path.glob("cells/*/*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    workers = psutil.Process(study.pid).children(recursive=True)
    os.kill(study.pid, how)
    study.communicate()
    _, alive = psutil.wait_procs(workers, timeout=600)
    assert workers and not alive
    kept = len(list(tmp_path.glob("cells/*/*.json")))
    assert kept >= 3
    ran = len((tmp_path / "log").read_text().splitlines())
    _, log = run([finetuning(fold) for fold in range(kept + 2)], tmp_path)
    assert len(log) - ran <= 4, "only what was missing was run"


def test_estimate_knows_what_it_does_not_know():
    estimate = Estimate(workers=2)
    cells = [finetuning(fold) for fold in range(4)] + [finetuning(0, labels=4)]
    assert estimate.left(cells) == (0.0, ["local N=1 full", "local N=4 full"])
    for seconds in (10, 30):
        estimate.add("local N=1 full", seconds)
    assert estimate.left(cells) == (40.0, ["local N=4 full"])  # 4 cells of 20 s on two workers
    line = Progress(7, estimate, stream=io.StringIO()).line(cells, ["this one"], failed=1)
    assert line == "2/7 cells | 1 failed | more than 40 s left: local N=4 full not yet timed | now: this one"
    estimate.add("local N=4 full", 200)
    assert "about 2 min left" in Progress(7, estimate, stream=io.StringIO()).line(cells, [])
    estimate.add("pre-training", 100)
    assert estimate.left([pretraining()])[0] == 50, "a pre-training runs beside other cells"
    filtered = replace(pretraining(), options=JobOptions.make({}, (NOISE,)))
    assert estimate.left([filtered])[0] == 100, "with a filter of NVFlare it has all cores for itself"


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (89, "89 s"), (600, "10 min"), (7200, "2.0 h")])
def test_duration(seconds, text):
    assert duration(seconds) == text
