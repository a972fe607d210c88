"""What a few labelled patients add: at one hospital alone, at all of them together, and everything in one place.

Labelled patients come from one half of each hospital, the scored ones are the other half; scored as ``fclseg segment``
segments, on the original grid. A draw takes the first N patients of one random order, so that more labels contain
fewer. The order of the cells was fixed before any figure was seen, and an interrupted run continues.

    python benchmarks/few_labels.py --data ACDC MNMS --out DIR [--labels 1 4 2 8 1000] [--draws 2] [--network FILE]
"""

import argparse
import contextlib
import csv
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from labelled_slices import score

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume
from fclseg.api import finetune, pretrain
from fclseg.data.hospitals import join_folders
from fclseg.evaluation.people import CHOOSE, REPORT, Person, read_people
from fclseg.resources import shipped_model

ALONE, TOGETHER, POOLED = "alone", "together", "pooled"
Scores = dict[str, dict[str, float]]


class Cell(NamedTuple):
    how: str
    hospital: str  # "" for all of them
    labels: int  # patients of each hospital; more than there are: all
    draw: int

    @property
    def name(self) -> str:
        return "-".join(map(str, (self.how, self.hospital.replace(" ", "_") or "all", self.labels, self.draw)))


def cells(hospitals: Sequence[str], labels: Sequence[int], draws: int) -> Iterator[Cell]:
    """In the order in which they run: without labels first, then one draw of everything, then the next."""
    for hospital in hospitals:
        yield Cell(ALONE, hospital, 0, 0)
    for draw in range(draws):
        for count in labels:
            yield from (Cell(ALONE, hospital, count, draw) for hospital in hospitals)
            yield Cell(TOGETHER, "", count, draw)
    yield Cell(POOLED, "", max(labels), 0)


class Hospitals:
    """The labelled patients of all hospitals as one data set, and the two halves of each."""

    def __init__(self, folders: Sequence[Path], out: Path):
        self.root = out / "hospitals"
        if not self.root.exists():
            join_folders(folders, self.root)
        self.volumes = [volume for volume in read_folder(self.root) if volume.label is not None]
        self.people: dict[str, Person] = {
            f"{folder.name}-{name}": replace(one, patient=f"{folder.name}-{name}")
            for folder in folders
            for name, one in read_people([one for one in read_folder(folder) if one.label], folder).items()
        }
        self.names = sorted({one.hospital for one in self.people.values()})

    def of(self, half: str, hospital: str = "") -> list[str]:
        return sorted(name for name, one in self.people.items() if one.half == half and hospital in ("", one.hospital))

    def drawn(self, cell: Cell) -> list[str]:
        """The labelled patients of a cell."""
        found = []
        for hospital in [cell.hospital] if cell.hospital else self.names:
            names = self.of(CHOOSE, hospital)
            order = np.random.default_rng([cell.draw, self.names.index(hospital)]).permutation(len(names))
            found += [names[i] for i in order[: cell.labels]]
        return sorted(found)

    def linked(self, folder: Path, patients: Sequence[str]) -> Path:
        """A folder with these patients only."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, volume in {volume.patient: volume for volume in self.volumes}.items():
            link = folder / name
            if name in patients and not link.exists():
                link.symlink_to(volume.image.parent.resolve())
        return folder

    def images(self, patients: Sequence[str]) -> list[Volume]:
        return [volume for volume in self.volumes if volume.patient in patients]


def trained(cell: Cell, hospitals: Hospitals, network: Path, work: Path) -> Path:
    """The model file of a cell."""
    patients = hospitals.drawn(cell)
    data = hospitals.linked(work / "data", patients)
    if cell.how != TOGETHER:
        return finetune(data, work / "model", network=network, hold_out=False, seed=cell.draw).model
    sites = work / "sites.csv"
    with open(sites, "w", newline="") as stream:
        rows = [(name, hospitals.people[name].hospital.replace(" ", "-")) for name in patients]
        csv.writer(stream).writerows([("patient", "site"), *rows])
    return pretrain(
        "finetune_federated",
        data,
        work / "run",
        sites_by=str(sites),
        preset="standard",
        network=network,
        seed=cell.draw,
    ).network


def run(cell: Cell, hospitals: Hospitals, network: Path, out: Path) -> dict:
    began, model = time.process_time(), network
    if cell.labels:
        with open(out / f"{cell.name}.log", "w") as log, contextlib.redirect_stdout(log):
            model = trained(cell, hospitals, network, out / cell.name)
    seconds = time.process_time() - began
    scored = hospitals.images(hospitals.of(REPORT, cell.hospital))
    patients: Scores = score(model, scored, hospitals.people)
    return {"cell": cell._asdict(), "cpu_seconds": round(seconds, 1), "patients": patients}


def table(found: Sequence[dict], hospitals: Hospitals) -> Iterator[str]:
    """One line per way and number of labels: Dice at each hospital over its draws, their mean, the mean error of both
    ejection fractions in points over all patients, CPU seconds."""
    yield ",".join(["how", "labels", *hospitals.names, "mean", "LV EF", "RV EF", "draws", "CPU s of a training"])
    kinds = list(dict.fromkeys((one["cell"]["how"], one["cell"]["labels"]) for one in found))
    for how, labels in kinds:
        rows = [one for one in found if (one["cell"]["how"], one["cell"]["labels"]) == (how, labels)]
        dice: dict[str, list[float]] = {name: [] for name in hospitals.names}
        for row in rows:
            values: dict[str, list[float]] = {}
            for patient, scores in row["patients"].items():
                values.setdefault(hospitals.people[patient].hospital, []).append(scores["dice"])
            for name, one in values.items():
                dice[name].append(float(np.mean(one)))
        means = [np.mean(one) if one else np.nan for one in dice.values()]
        cost = np.mean([row["cpu_seconds"] for row in rows])
        draws = "/".join(str(len(one)) for one in dice.values())
        errors = [f"{ef_error(rows, structure):.1f}" for structure in ("LV", "RV")]
        dices = [f"{one:.3f}" for one in (*means, np.mean(means))]
        yield ",".join([how, str(labels), *dices, *errors, draws, f"{cost:.0f}"])


def ef_error(rows: Sequence[dict], structure: str) -> float:
    """Mean absolute error of an ejection fraction, in points, over all patients of all rows."""
    scores = [one for row in rows for one in row["patients"].values()]
    pairs = [(one[f"ef_{structure}"], one[f"true_ef_{structure}"]) for one in scores]
    return float(np.mean([abs(found - true) for found, true in pairs if found is not None and true is not None]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="labelled folders in the layout of ACDC")
    parser.add_argument("--out", type=Path, required=True, help="folder for models and scores")
    parser.add_argument("--labels", type=int, nargs="+", default=[1, 4, 8, 2, 1000], help="1000: all")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--network", type=Path, help="start (default: the shipped weights)")
    parser.add_argument("--ways", nargs="+", default=[ALONE, TOGETHER, POOLED])
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    hospitals, found = Hospitals(given.data, given.out), []
    network = given.network or shipped_model("acdc_unet")
    for cell in cells(hospitals.names, given.labels, given.draws):
        if cell.how not in given.ways:
            continue
        kept = given.out / f"{cell.name}.json"
        if not kept.is_file():
            kept.write_text(json.dumps(run(cell, hospitals, network, given.out)))
        found.append(json.loads(kept.read_text()))
        print(cell.name, f"{np.mean([one['dice'] for one in found[-1]['patients'].values()]):.3f}", flush=True)
    print("\n".join(table(found, hospitals)))


if __name__ == "__main__":
    main()
