"""``fclseg batch`` on many exams: exams per hour, CPU seconds per exam, memory, and what a kill costs.

Exams are copies of a few phantoms (links, so that a thousand need no space). The command is killed (SIGKILL) when a
third of the exams is done, and started again. Memory of a worker is compared between its first and its last exam.
With --slices each volume has only so many slices, so that a thousand exams take minutes instead of an hour; exams per
hour and CPU seconds are then not those of whole exams.

    python benchmarks/many_exams.py --out DIR [--exams 200] [--workers 2] [--phantoms 4] [--frames 2] [--slices 4]
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import nibabel as nib

from fclseg.phantom.dataset import write_phantom

CODE = "import sys; from fclseg.cli import main; sys.exit(main(sys.argv[1:]))"


def make_exams(folder: Path, exams: int, phantoms: int, frames: int, slices: int | None) -> None:
    """Folders exam0001, ...; each has the images of one phantom, without label maps."""
    write_phantom(folder / "phantoms", "acdc", patients=phantoms, seed=11, frames=frames)
    patients = sorted((folder / "phantoms").glob("patient*"))
    if slices is not None:
        for path in (folder / "phantoms").rglob("*.nii.gz"):
            image = nib.load(path)
            first = (image.shape[2] - slices) // 2
            nib.save(image.slicer[:, :, first : first + slices], path)
    for number in range(exams):
        source = patients[number % phantoms]
        target = folder / "exams" / f"exam{number + 1:04d}" / source.name
        target.mkdir(parents=True)
        for path in source.iterdir():
            if "_gt" not in path.name:
                os.link(path, target / path.name)


def begin(out: Path, workers: int) -> subprocess.Popen[bytes]:
    command = ["batch", str(out / "exams"), "--out", str(out / "results"), "--workers", str(workers)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", CODE, *command], env=environment, start_new_session=True)


def rows(out: Path) -> list[dict]:
    path = out / "results" / "exams.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for exams and results; emptied first")
    parser.add_argument("--exams", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--phantoms", type=int, default=4)
    parser.add_argument("--frames", type=int, default=2, help="phases of each cine")
    parser.add_argument("--slices", type=int, help="middle slices of each volume (default: all)")
    arguments = parser.parse_args()
    out = arguments.out
    shutil.rmtree(out, ignore_errors=True)
    make_exams(out, arguments.exams, min(arguments.phantoms, arguments.exams), arguments.frames, arguments.slices)
    began = time.monotonic()
    process = begin(out, arguments.workers)
    while len(rows(out)) < max(1, arguments.exams // 3) and process.poll() is None:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = len(rows(out))
    code = begin(out, arguments.workers).wait()
    hours = (time.monotonic() - began) / 3600
    found = rows(out)
    assert not any(row["reason"] for row in found), found[0]["reason"]
    twice = len(found) - len({row["exam"] for row in found})
    cpu = [row["cpu_seconds"] for row in found]
    memory = [row["memory_mb"] for row in found]
    third = max(1, len(found) // 3)
    print(
        f"{arguments.exams} exams, {arguments.workers} workers: {len(found) / hours:.0f} exams per hour with the kill, "
        f"{statistics.median(cpu):.1f} CPU s per exam (median); killed after {kept}, {twice} done twice, exit code "
        f"{code}; memory of a worker {statistics.median(memory[:third]):.0f} MB in the first third, "
        f"{statistics.median(memory[-third:]):.0f} MB in the last, {max(memory)} MB at most"
    )


if __name__ == "__main__":
    main()
