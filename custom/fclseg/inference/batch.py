"""``fclseg batch``: many exams, one after the other or by several processes, each in a folder of its own.

A line per exam goes to ``exams.jsonl`` as soon as it is done. The same command continues: exams that are done and have
not changed are not opened again. Processes are replaced now and then, so that memory stays flat.
"""

import csv
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil

from fclseg.documents import read_json_lines
from fclseg.errors import DataError, FCLSegError
from fclseg.files import append_line, make_folder, whole_file
from fclseg.inference.exam import SegmentOptions, segment_scan
from fclseg.inference.report.page import KEY_FIGURES, page_name
from fclseg.text import cell, printable

LEDGER, TABLE = "exams.jsonl", "exams.csv"
EXAMS_PER_PROCESS = 25
AHEAD = 2
"""Exams that wait for a process: a list of thousands is not handed over at once."""


def find_exams(folder: Path) -> list[Path]:
    """Each sub-folder, zip archive or image directly in a folder is an exam."""
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder; give the folder that contains one folder per exam")
    exams = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    exams = [path for path in exams if path.is_dir() or path.name.lower().endswith((".zip", ".nii", ".nii.gz", ".dcm"))]
    if not exams:
        raise DataError(f"{folder}: contains no exams; give the folder that contains one folder per exam")
    return exams


def run_batch(folder: Path, out: Path, options: SegmentOptions) -> list[dict[str, Any]]:
    """Segment every exam of a folder; returns a row per exam. One bad exam does not stop the others."""
    if out.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{out}: is inside the folder of exams; choose a folder outside of it")
    make_folder(out)
    exams = find_exams(folder)
    done = {row["exam"]: row for row in read_json_lines(out / LEDGER)}
    rows: dict[str, dict[str, Any]] = {}
    waiting = []
    for exam in exams:
        row = done.get(exam.name)
        if row is not None and row["fingerprint"] == _fingerprint(exam, options):
            rows[exam.name] = row
        else:
            waiting.append(exam)
    if rows:
        print(f"{len(rows)} of {len(exams)} exams are done already", flush=True)
    started = time.monotonic()
    for number, row in enumerate(_results(waiting, out, options), start=1):
        append_line(out / LEDGER, json.dumps(row))
        rows[row["exam"]] = row
        hours = (time.monotonic() - started) / 3600
        print(f"[{len(rows)}/{len(exams)}] {_in_words(row)} ({number / hours:.0f} exams per hour)", flush=True)
    ordered = [rows[exam.name] for exam in exams]
    _write_table(out / TABLE, ordered)
    return ordered


def _results(exams: list[Path], out: Path, options: SegmentOptions) -> Iterator[dict[str, Any]]:
    """Rows in the order in which exams end."""
    workers, single = options.workers, replace(options, workers=1, quiet=True)
    if workers == 1:
        yield from (one_exam(exam, out / page_name(exam.name), single) for exam in exams)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), max_tasks_per_child=EXAMS_PER_PROCESS) as pool:
        todo, running = iter(exams), set[Future[dict[str, Any]]]()
        try:
            while running or todo is not None:
                for exam in _some(todo, workers * AHEAD - len(running)):
                    running.add(pool.submit(one_exam, exam, out / page_name(exam.name), single))
                if not running:
                    return
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in ended)
        except BrokenProcessPool:
            raise FCLSegError(
                "a worker process was killed, perhaps because memory ran out; finished exams are kept: run the same "
                "command again with fewer --workers"
            ) from None


def _some(items: Iterable[Path], count: int) -> Iterator[Path]:
    for _, item in zip(range(count), items, strict=False):
        yield item


def one_exam(exam: Path, out: Path, options: SegmentOptions) -> dict[str, Any]:
    """A row with what was found, or with the reason why nothing was."""
    row: dict[str, Any] = {"exam": exam.name, "fingerprint": _fingerprint(exam, options), "patients": 0, "reason": ""}
    process, started = psutil.Process(), time.monotonic()
    before = sum(process.cpu_times()[:2])
    try:
        results = segment_scan(exam, out, options)
        row["patients"] = len(results)
        for result in results[:1]:
            row |= {f"{one.name}, {one.unit}": round(one.number, 1) for one in result.values
                    if one.plausible and one.name.endswith(KEY_FIGURES)}  # fmt: skip
            row["look_at"] = "; ".join(result.flags)
    except FCLSegError as error:
        row["reason"] = str(error)
    except OSError as error:
        row["reason"] = f"{error.filename or exam}: {error.strerror or error}; free space or change permissions"
    seconds = {"seconds": time.monotonic() - started, "cpu_seconds": sum(process.cpu_times()[:2]) - before}
    row |= {name: round(value, 1) for name, value in seconds.items()}
    return row | {"memory_mb": round(process.memory_info().rss / 1e6)}


def _fingerprint(exam: Path, options: SegmentOptions) -> str:
    """Of the names, sizes and times of an exam's files, and of the model."""
    paths = [exam] if exam.is_file() else sorted(Path(at, name) for at, _, names in os.walk(exam) for name in names)
    parts = [(str(path.relative_to(exam.parent)), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    settings = (str(options.model), options.all_phases, options.pdf, options.cine_only)
    return hashlib.blake2b(repr((parts, settings)).encode(), digest_size=12).hexdigest()


def _in_words(row: dict[str, Any]) -> str:
    name = printable(row["exam"])
    if row["reason"]:
        return f"{name}: not segmented: {printable(row['reason'])}"
    values = ", ".join(f"{key.rpartition(', ')[0]} {value:g} {key.rpartition(', ')[2]}" for key, value in row.items()
                       if key.split(",")[0].endswith(KEY_FIGURES))  # fmt: skip
    return f"{name}: {values}{'; CHECK' if row.get('look_at') else ''}, {row['cpu_seconds']:.1f} CPU s"


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "fingerprint"]
    with whole_file(path) as draft, open(draft, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows({key: cell(value) for key, value in row.items()} for row in rows)
