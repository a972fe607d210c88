"""From an empty folder of labels to a better network for one hospital: Dice against the number of labelled slices.

Half of the hospital's patients can be labelled, the other half is scored; then the halves are exchanged, so that every
patient is scored once per row. Labels are made as on the page of ``fclseg label``: the same session outlines and
proposes, and the experts' outlines of a slice are saved in place of a person's. The network is trained as by "Train
now", from the shipped weights, and scored as ``fclseg segment`` segments. Three ways to spend a number of slices:

    proposed  the slices that the page proposes
    random    slices at and beside the heart, drawn at random over all patients
    whole     all slices of one heart after the other, both phases

Each result is a file in --out, so that an interrupted benchmark continues. Weights have folders of their own there.

    python benchmarks/labelled_slices.py --data MNMS --hospital "mnms 1" --out DIR [--slices 10 20 40]
"""

import argparse
import contextlib
import hashlib
import io
import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume, read_images
from fclseg.evaluation.people import Person, read_people
from fclseg.evaluation.scores import patient_row, volume_row
from fclseg.inference.segment import Segmenter
from fclseg.labelling.changes import overlap_of_structures
from fclseg.labelling.proposal import Key
from fclseg.labelling.records import DONE
from fclseg.labelling.session import Session, Slice
from fclseg.labelling.train_job import train
from fclseg.networks.model_file import MODEL, load_model
from fclseg.resources import shipped_model

WAYS = ("proposed", "random", "whole")
RIGHT = 0.9
"""A slice whose outlines have this Dice with the expert's needs little more than a look."""


def unlabelled_copy(folder: Path, volumes: Iterable[Volume]) -> Path:
    """The images without their label maps."""
    shutil.rmtree(folder, ignore_errors=True)
    for volume in volumes:
        target = folder / volume.patient
        target.mkdir(parents=True, exist_ok=True)
        (target / volume.image.name).symlink_to(volume.image.resolve())
        if not (target / "Info.cfg").exists():
            shutil.copyfile(volume.image.parent / "Info.cfg", target / "Info.cfg")
    return folder


def opened(data: Path, labels: Path, count: int) -> Session:
    """A session that has outlined every patient."""
    session = Session(data, labels, shipped_model("acdc_unet"), "expert", count)
    for patient in session.patients:
        session.background.work(patient)
        session.background.done.add(patient)
    return session


def chosen(session: Session, way: str, count: int, seed: int) -> list[Key]:
    source = np.random.default_rng(seed)
    if way == "proposed":
        return [one.key for one in session.next()]
    if way == "random":
        around = [one.key for found in session.candidates.values() for one in found]
        return [around[i] for i in source.permutation(len(around))[:count]]
    hearts = source.permutation(sorted(session.patients))
    whole = [
        (name, session.volumes[index].frame, number)
        for name in hearts
        for index in session.patients[name]
        for number in range(session.folder.shape(session.volumes[index])[2])
    ]
    return whole[:count]


def label(session: Session, keys: list[Key], experts: dict[tuple[str, int | None], np.ndarray]) -> list[float]:
    """Save the experts' outlines; returns how right the network's were in each slice."""
    index = {(volume.patient, volume.frame): number for number, volume in enumerate(session.volumes)}
    agreement = []
    for patient, frame, number in keys:
        at, plane = index[patient, frame], experts[patient, frame][:, :, number]
        before = session.labels(at)
        assert before is not None
        agreement.append(overlap_of_structures(before[:, :, number], plane))
        session.save(Slice(at, number, 0, DONE, 0.0, plane))
    return agreement


def score(
    model: Path, volumes: list[Volume], people: dict[str, Person], refined: bool = True
) -> dict[str, dict[str, float]]:
    """Dice, volume errors and ejection fractions (found and true) of each patient, on the images' own grid."""
    segmenter = Segmenter(load_model(model), refined=refined)
    found = {}
    for patient in sorted({volume.patient for volume in volumes}):
        rows = []
        for volume, voxels in read_images([one for one in volumes if one.patient == patient]):
            labels = segmenter(voxels, volume).labels
            rows.append(volume_row(volume, people[patient], labels, volume.read_label().astype(np.uint8), False))
        row = patient_row(people[patient], rows, volumes[0].anatomy, None)
        found[patient] = {name: row[name] for name in row if name.startswith(("dice", "volume", "ef_", "true_ef_"))}
    return found


def cell(out: Path, way: str, count: int, half: int, volumes: list[Volume], people: dict[str, Person]) -> dict:
    """One training and its scores."""
    names = sorted({volume.patient for volume in volumes})
    pool = set(names[half::2])
    began, shipped = time.process_time(), shipped_model("acdc_unet")
    if not count:
        return {"patients": score(shipped, [one for one in volumes if one.patient not in pool], people)}
    work = out / f"work-{way}-{count}-{half}"
    shutil.rmtree(work, ignore_errors=True)
    labellable = [volume for volume in volumes if volume.patient in pool]
    experts = {(one.patient, one.frame): np.array(one.read_label(), np.uint8) for one in labellable}
    session = opened(unlabelled_copy(work / "images", labellable), work / "labels", count)
    keys = chosen(session, way, count, half)
    agreement = label(session, keys, experts)
    outlined = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):  # progress for the page
        train(session.out, shipped, work / "model")
    trained = time.process_time()
    scores = score(work / "model" / MODEL, [one for one in volumes if one.patient not in pool], people)
    shutil.rmtree(work)
    return {
        "patients": scores,
        "slices": len(keys),
        "hearts": len({patient for patient, _, _ in keys}),
        "right": sum(one >= RIGHT for one in agreement),
        "outlining_seconds": round(outlined - began, 1),
        "training_seconds": round(trained - outlined, 1),
    }


def table(out: Path) -> str:
    """Mean Dice over all patients of both halves, and the paired gain with its 95 % bootstrap interval."""
    rows: dict[tuple[int, str], list[dict]] = {}
    for path in sorted(out.glob("*.json")):
        way, count, _ = path.stem.split("-")
        rows.setdefault((int(count), way), []).append(json.loads(path.read_text()))
    start = _dice(rows[0, "none"])
    lines = [
        "| slices | chosen | hearts | patients | Dice | gain (95 % interval) | RV, MYO, LV | nearly right | CPU s |",
        "|---:|---|---:|---:|---:|---|---|---:|---:|",
    ]
    for (count, way), found in sorted(rows.items()):
        dice = _dice(found)
        names = sorted(dice.keys() & start.keys())
        gains = np.array([dice[name] - start[name] for name in names])
        drawn = np.random.default_rng(0).integers(0, len(gains), (10000, len(gains)))
        low, high = np.percentile(gains[drawn].mean(axis=1), [2.5, 97.5])
        parts = ", ".join(f"{np.mean(list(_dice(found, f'dice_{name}').values())):.3f}" for name in ("RV", "MYO", "LV"))
        gain = f"{gains.mean():+.3f} ({low:+.3f} to {high:+.3f})" if count else ""
        hearts, right, cpu = (
            ", ".join(str(one.get(name, "")) for one in found) for name in ("hearts", "right", "training_seconds")
        )
        mean = np.mean([dice[name] for name in names])
        lines.append(f"| {count} | {way} | {hearts} | {len(names)} | {mean:.3f} | {gain} | {parts} | {right} | {cpu} |")
    return "\n".join(lines)


def _dice(found: list[dict], name: str = "dice") -> dict[str, float]:
    return {patient: scores[name] for one in found for patient, scores in one["patients"].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="labelled folder in the layout of ACDC")
    parser.add_argument("--hospital", help="only its patients, FOLDER CENTRE, as fclseg evaluate calls it")
    parser.add_argument("--patients", type=int, help="only so many patients, the first ones")
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    parser.add_argument("--slices", type=int, nargs="+", default=[20])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument(
        "--halves", type=int, nargs="+", default=[0, 1], help="0: the second half is scored, 1: the first"
    )
    parser.add_argument("--most", type=int, help="stop after so many trainings; run again to continue")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    weights = hashlib.sha256(shipped_model("acdc_unet").read_bytes()).hexdigest()[:12]
    out = arguments.out / weights
    out.mkdir(parents=True, exist_ok=True)
    volumes = [volume for volume in read_folder(arguments.data) if volume.label]
    people = read_people(volumes, arguments.data)
    names = [name for name, one in sorted(people.items()) if arguments.hospital in (None, one.hospital)]
    volumes = [volume for volume in volumes if volume.patient in names[: arguments.patients]]
    if not volumes:
        parser.error(f"no patient of {arguments.hospital}: {sorted({one.hospital for one in people.values()})}")
    cells = [("none", 0)] + [(way, count) for count in arguments.slices for way in arguments.ways]
    halves = arguments.halves
    files = {out / f"{way}-{count}-{half}.json": (way, count, half) for half in halves for way, count in cells}
    missing = [path for path in files if not path.exists()]
    for path in missing[: arguments.most]:
        found = cell(out, *files[path], volumes, people)
        path.write_text(json.dumps(found))
        print(f"{path.stem}: {np.mean(list(_dice([found]).values())):.3f}", flush=True)
    if len(missing) <= (arguments.most or len(missing)):
        print(f"weights {weights}\n{table(out)}")


if __name__ == "__main__":
    main()
