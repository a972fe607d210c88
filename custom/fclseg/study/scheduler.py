"""Runs the missing cells of a study on all cores. Finished cells are never lost.

Each worker is a process with one computing thread, because two threads on two half-idle cores are slower than two
processes. It keeps its images open between cells and stores each result as soon as it has it. If a worker dies, only
its current cell is lost and the worker is replaced. If the study is killed, the workers end themselves and everything
they started.
"""

import importlib
import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil

from fclseg.documents import understood
from fclseg.environment import TRAINING_ENVIRONMENT
from fclseg.errors import FCLSegError
from fclseg.files import whole_lines
from fclseg.study.cache import AGAIN, Cache
from fclseg.study.cells import Cell, Finetuning, Pretraining
from fclseg.study.progress import Estimate, Progress

WORKER_ENVIRONMENT = {"OMP_NUM_THREADS": "1", **TRAINING_ENVIRONMENT}
EXECUTE = "fclseg.study.execute:run_cell"
"""What a worker calls for a cell, as ``module:function``. It imports torch, which this module must not."""


@dataclass(frozen=True)
class Failure:
    cell: Cell
    reason: str


@dataclass
class Worker:
    process: multiprocessing.process.BaseProcess
    connection: Connection
    cell: Cell | None = None


@dataclass
class Scheduler:
    """``run(cells)`` fills the cache and returns the failures."""

    cache: Cache
    workers: int = 2
    execute: str = EXECUTE
    progress: Callable[[int, Estimate], Progress] = Progress
    pool: list[Worker] = field(default_factory=list)

    def run(self, cells: Sequence[Cell]) -> list[Failure]:
        """Run every cell that has no result. Pre-trainings run before the cells that depend on them."""
        waiting, estimate = self._missing(cells)
        progress = self.progress(len(waiting), estimate)
        failures: list[Failure] = []
        try:
            while waiting or self._busy():
                self._start(waiting, failures)
                self._collect(estimate, failures)
                running = self._busy()
                progress.show([*running, *waiting], [self._status(cell) for cell in running], len(failures))
        finally:
            self._stop()
            progress.close()
        return failures

    def _missing(self, cells: Sequence[Cell]) -> tuple[list[Cell], Estimate]:
        """The cells without a result, with the pre-trainings they depend on, and an estimate from stored durations."""
        estimate, missing, seen = Estimate(self.workers), {}, set()
        waiting = list(cells)
        while waiting:
            cell = waiting.pop(0)
            if cell.key in seen:
                continue
            seen.add(cell.key)
            if result := self.cache.get(cell.key):
                with understood(self.cache.path(cell.key), AGAIN):
                    estimate.add(cell.kind, float(result["seconds"]))
                continue
            missing[cell.key] = cell
            if isinstance(cell, Finetuning) and cell.pretraining is not None:
                waiting.append(cell.pretraining)
        # Pre-training comes first, because other cells depend on it.
        return sorted(missing.values(), key=lambda cell: not isinstance(cell, Pretraining)), estimate

    def _busy(self) -> list[Cell]:
        return [worker.cell for worker in self.pool if worker.cell is not None]

    def _status(self, cell: Cell) -> str:
        """Describe a running cell; for a pre-training also the number of rounds in its run folder."""
        if not isinstance(cell, Pretraining):
            return cell.describe()
        done = len(whole_lines(cell.folder(self.cache.root) / "rounds.jsonl"))
        return f"{cell.describe()}, round {done} of {cell.preset.pretraining.rounds}"

    def _start(self, waiting: list[Cell], failures: list[Failure]) -> None:
        """Give the next cells to idle workers. An exclusive cell runs alone."""
        self._give_up(waiting, failures)
        while (cell := self._next(waiting)) is not None:
            worker = self._idle_worker()
            try:
                worker.connection.send((cell, self.cache.root))
            except BrokenPipeError:  # it died while it was idle
                self.pool.remove(worker)
                continue
            waiting.remove(cell)
            worker.cell = cell

    def _give_up(self, waiting: list[Cell], failures: list[Failure]) -> None:
        """Cells whose pre-training failed fail with it."""
        lost = {failure.cell.key for failure in failures}
        for cell in list(waiting):
            if isinstance(cell, Finetuning) and cell.pretraining is not None and cell.pretraining.key in lost:
                failures.append(Failure(cell, f"{cell.pretraining.describe()} failed"))
                waiting.remove(cell)

    def _next(self, waiting: Sequence[Cell]) -> Cell | None:
        """The first cell that can start now. Cells that wait for a pre-training let others go before them."""
        busy = self._busy()
        if len(busy) >= self.workers or any(cell.exclusive for cell in busy):
            return None
        unfinished = {cell.key for cell in (*waiting, *busy) if isinstance(cell, Pretraining)}
        for cell in waiting:
            if cell.exclusive:
                return None if busy else cell
            if isinstance(cell, Pretraining) or cell.pretraining is None or cell.pretraining.key not in unfinished:
                return cell
        return None

    def _idle_worker(self) -> Worker:
        for worker in self.pool:
            if worker.cell is None:
                return worker
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        with _environment(WORKER_ENVIRONMENT):
            process = context.Process(target=_work, args=(theirs, os.getpid(), self.execute), name="study-worker")
            process.start()
        theirs.close()
        self.pool.append(Worker(process, ours))
        return self.pool[-1]

    def _collect(self, estimate: Estimate, failures: list[Failure]) -> None:
        """Wait at most a second for a worker to answer or to die."""
        ready = wait([worker.connection for worker in self.pool], timeout=1.0)
        for worker in [worker for worker in self.pool if worker.connection in ready]:
            cell = worker.cell
            try:
                seconds, reason = worker.connection.recv()
            except (EOFError, ConnectionResetError):  # the latter if it died before it read its cell
                worker.process.join()
                seconds, reason = 0.0, f"its process ended with code {worker.process.exitcode} (out of memory?)"
                self.pool.remove(worker)
            worker.cell = None
            if cell is None:  # it died while it was idle
                continue
            if reason is None:
                estimate.add(cell.kind, seconds)
            else:
                failures.append(Failure(cell, self._keep_log(cell, reason)))

    def _keep_log(self, cell: Cell, reason: str) -> str:
        """The traceback goes to a file. The user sees its last line."""
        lines = reason.strip().splitlines()
        if len(lines) == 1:
            return lines[0]
        log = self.cache.attachment(cell.key, ".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{cell.describe()}\n\n{reason}")
        return f"{lines[-1]} (details: {log})"

    def _stop(self) -> None:
        """End idle workers by closing their pipe. Kill busy ones (after an interruption) with all they started."""
        for worker in self.pool:
            if worker.cell is not None and worker.process.pid is not None:
                end_tree(worker.process.pid)
            worker.connection.close()
        for worker in self.pool:
            worker.process.join()
        self.pool.clear()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables that a child needs at its start, because OpenMP reads them only once."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def end_tree(pid: int) -> None:
    """Kill a process and everything it started. Nothing is lost: a study restarts from its stored results."""
    try:
        root = psutil.Process(pid)
        family = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def _work(connection: Connection, parent: int, execute: str) -> None:
    """The loop of a worker: it receives cells, stores results in the cache, and returns (seconds, error or None)."""
    os.setsid()  # Ctrl-C also reaches the study, which then ends its workers
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    module, _, name = execute.partition(":")
    run_cell = getattr(importlib.import_module(module), name)
    while True:
        try:
            cell, root = connection.recv()
        except EOFError:
            return
        connection.send(_run_one(run_cell, cell, Cache(Path(root))))


def _run_one(run_cell: Callable[[Cell, Cache], dict[str, Any]], cell: Cell, cache: Cache) -> tuple[float, str | None]:
    started = time.perf_counter()
    try:
        result = run_cell(cell, cache)
        seconds = time.perf_counter() - started
        cache.put(cell.key, {"cell": cell.describe(), "seconds": round(seconds, 3)} | result)
    except FCLSegError as error:
        return 0.0, str(error)
    except Exception:
        return 0.0, traceback.format_exc()
    return seconds, None


def _end_with(parent: int) -> None:
    """Orphaned workers must stop, or the next start of the study would run the same cell a second time."""
    while os.getppid() == parent:
        time.sleep(1.0)
    end_tree(os.getpid())
