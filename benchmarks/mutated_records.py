"""Reads damaged run and study folders, splits, tables and model files. The outcome must be a result or one sentence.

    python benchmarks/mutated_records.py --count 1000

Intact files are damaged one at a time, as text (truncated, wrong bytes, nesting, very long numbers) or as a document
(an entry removed or replaced), and read by the same code as in a command.
"""

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from outcomes import REFUSED, Counts, outcome_of, report

from fclseg.anatomy.folders import scan_folder
from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.assignment import read_assignment
from fclseg.data.sites import Splits
from fclseg.documents import read_json
from fclseg.engine.messages import FORMAT
from fclseg.engine.place import read_site_file
from fclseg.engine.run_folder import RunFolder
from fclseg.hospital.policy import Policy
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.model_file import TrainedModel, load_model, write_model
from fclseg.phantom.dataset import write_phantom
from fclseg.study.report.page import write_report

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "study"))
from full_study import write_study, write_tables  # a finished study that was not trained

Random = np.random.Generator
LEAVES: list[Any] = [None, "x", "", [], {}, -1, 0, 1e308, -1e308, float("nan"), 10**400, True, "\x00", [[[]]], 2**70]


@dataclass(frozen=True)
class Record:
    """A file in the intact folder, and how a command reads it."""

    name: str
    file: str
    read: Callable[[Path], object]  # takes the folder


def make_folder(folder: Path) -> None:
    """One intact example of each kind."""
    write_study(folder / "study")
    sites = {f"site-{n}": {"status": "ok", "loss": 1.0 / n, "feature_std": 0.5, "images": 9} for n in (1, 2)}
    way = {"payload": {"online": 900, "target": 900}, "wire": 2000}
    lines = [
        {"round": n, "loss": 1.0, "d": 0.1, "d_predicted": 0.1, "seconds": 1.0, "sites": sites}
        | {"bytes": {site: {"up": way, "down": way} for site in sites}}
        for n in range(3)
    ]
    run = folder / "run"
    run.mkdir()
    (run / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "config.json").write_text(json.dumps({"format": FORMAT, "settings": {"job": "fcl"}, "sites": [], "id": "a"}))
    (run / "result.json").write_text(json.dumps({"encoders": {"": "encoder.safetensors"}, "model": "m.safetensors"}))
    (run / "failure.json").write_text(json.dumps({"reason": "no site answered"}))
    patients = [f"p{n}" for n in range(12)]
    Splits.make(patients, sites=2, folds=3).save(folder / "splits.json")
    (folder / "sites.csv").write_text("patient,site\n" + "".join(f"{name},site-1\n" for name in patients))
    (folder / "sites.json").write_text(json.dumps(dict.fromkeys(patients, "site-1")))
    (folder / "site.json").write_text(json.dumps({"data": "/images", "policy": {"rounds": 50, "jobs": ["fcl"]}}))
    plain = folder / "plain"
    plain.mkdir()
    (plain / "labels.json").write_text(json.dumps({"structures": {"1": "LV", "2": "RV"}, "spacing_mm": 1.5}))
    write_phantom(folder / "acdc", "acdc", 1, 0)
    shutil.copy2(next((folder / "acdc").rglob("*_frame01.nii.gz")), plain / "image.nii.gz")
    model = TrainedModel(FreezableUNet([4, 8], 4), ANATOMIES["acdc"], 32, 1.5, "demo")
    write_model(folder / "model.safetensors", model)


def records(folder: Path) -> list[Record]:
    cell = next(path.relative_to(folder) for path in sorted((folder / "study").rglob("cells/*/*.json")))
    picture = next(path.relative_to(folder) for path in sorted((folder / "study").rglob("cells/*/*.npz")))
    info = next(path.relative_to(folder) for path in sorted(folder.rglob("Info.cfg")))

    def run_report(where: Path) -> Path:
        return write_report(where / "run", where / "run.html")

    def study_report(where: Path) -> Path:
        return write_report(where / "study", where / "study.html")

    def check(where: Path) -> None:
        RunFolder(where / "run").check({"settings": {"job": "fcl"}})

    return [
        Record("a run's rounds", "run/rounds.jsonl", run_report),
        Record("a run's configuration, report", "run/config.json", run_report),
        Record("a run's configuration, resumed", "run/config.json", check),
        Record("a run's result", "run/result.json", lambda where: RunFolder(where / "run").encoders),
        Record("a run's failure", "run/failure.json", lambda where: RunFolder(where / "run").failure),
        Record("a study's document", "study/local/study.json", study_report),
        Record("a study's cell", str(cell), lambda where: write_tables(where / "study")),
        Record("a study's picture", str(picture), study_report),
        Record("splits", "splits.json", lambda where: Splits.load(where / "splits.json").validation(0)),
        Record("CSV of sites", "sites.csv", lambda where: read_assignment(where / "sites.csv")),
        Record("JSON of sites", "sites.json", lambda where: read_assignment(where / "sites.json")),
        Record("a site's settings", "site.json", lambda where: site_policy(where / "site.json")),
        Record("labels.json", "plain/labels.json", lambda where: scan_folder(where / "plain", "nifti")),
        Record("Info.cfg", str(info), lambda where: scan_folder(where / "acdc")),
        Record("a model file", "model.safetensors", lambda where: load_model(where / "model.safetensors")),
    ]


def site_policy(path: Path) -> Policy:
    return Policy.read(read_site_file(path).get("policy", {}))


def damage(path: Path, random: Random) -> str:
    """Change the file in one way. Returns the name of the change."""
    content = path.read_bytes()
    kinds: list[tuple[str, Callable[[], bytes]]] = [
        ("cut short", lambda: content[: random.integers(0, len(content))]),
        ("empty", lambda: b""),
        ("random bytes", lambda: random.bytes(int(random.integers(1, 3000)))),
        ("some bytes changed", lambda: _changed(content, random)),
        ("nested deeply", lambda: b"[" * 200_000 + b"]" * 200_000),
        ("a number of 5000 digits", lambda: b'{"a": ' + b"9" * 5000 + b"}\n"),
        ("another document", lambda: random.choice([b"[]\n", b"null\n", b"3\n", b'"x"\n', b"{}\n", b"[{}]\n"])),
        ("named pipe", lambda: b""),
    ]
    if path.suffix in (".json", ".jsonl"):
        kinds += [("an entry replaced", lambda: _replaced(path, random)), ("an entry removed", lambda: b"")] * 4
    name, change = kinds[int(random.integers(0, len(kinds)))]
    if name == "named pipe":
        path.unlink()
        os.mkfifo(path)
    elif name == "an entry removed":
        path.write_bytes(_replaced(path, random, remove=True))
    else:
        path.write_bytes(bytes(change()))
    return name


def _changed(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for at in random.integers(0, len(content), 6):
        changed[at] = int(random.integers(0, 256))
    return bytes(changed)


def _replaced(path: Path, random: Random, remove: bool = False) -> bytes:
    """A JSON document (or JSON lines) with one entry changed or removed."""
    lines = path.suffix == ".jsonl"
    document = [json.loads(line) for line in path.read_text().splitlines()] if lines else read_json(path)
    place, depth = document, int(random.integers(0, 7))
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = keys[int(random.integers(0, len(keys)))]
        if depth == 0 or not isinstance(place[key], dict | list) or not place[key]:
            if remove:
                del place[key]
            else:
                place[key] = LEAVES[int(random.integers(0, len(LEAVES)))]
            break
        place, depth = place[key], depth - 1
    written = "".join(json.dumps(one) + "\n" for one in document) if lines else json.dumps(document)
    return written.encode()


def outcome(record: Record, folder: Path) -> str:
    def read() -> str:
        record.read(folder)
        return "read"

    return outcome_of(read)


def run(count: int, seed: int = 0) -> tuple[Counts, list[str]]:
    """Outcomes by kind of file, and all failures."""
    counts: Counts = Counter()
    faults = []
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        make_folder(folder)
        known = records(folder)
        for record in known:
            record.read(folder)  # the intact file must be readable
        for number in range(count):
            record, random = known[number % len(known)], np.random.default_rng([seed, number])
            path, kept = folder / record.file, folder / "kept"
            shutil.copy2(path, kept)
            how = damage(path, random)
            found = outcome(record, folder)
            path.unlink()
            shutil.move(kept, path)
            counts[record.name, found.split(":")[0]] += 1
            if found not in ("read", REFUSED):
                faults.append(f"number {number}, {record.name}, {how}: {found}")
    return counts, faults


if __name__ == "__main__":
    sys.exit(report(__doc__, "damaged files", run))
