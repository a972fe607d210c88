"""Ours beside nnU-Net at one hospital: same labelled patients, same test patients, same scorer, same CPU minutes.

    python benchmarks/peers/side_by_side.py --data MNMS --hospital "mnms 1" --labels 1 4 --out build/peers

Ours is what a hospital gets: ``fclseg finetune`` from the shipped weights. Its CPU time of training is the budget of
nnU-Net, once and ``--times`` as much. The hospital's patients with labels to train on are those of the choosing half;
the other half is scored on the original grid. Reading, planning, preprocessing and prediction are not counted.

What a CPU budget does to nnU-Net: it starts from random weights and its network is planned for days on a GPU. Minutes
on one core are a few dozen steps. The table says which method to take on such a machine, not which one is better.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnunet import NNUNet, environment

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume
from fclseg.api import evaluate, finetune
from fclseg.evaluation.people import CHOOSE, REPORT, read_people
from fclseg.resources import shipped_model


def linked(folder: Path, volumes: list[Volume]) -> Path:
    """A folder with these patients only."""
    folder.mkdir(parents=True, exist_ok=True)
    for volume in volumes:
        link = folder / volume.patient
        if not link.exists():
            link.symlink_to(volume.image.parent.resolve())
    return folder


def scored(results: Path, labelled: Path, model: Path | None = None) -> dict[str, Any]:
    """Dice over patients, mean and by structure."""
    found = evaluate([(results, labelled)], out=results / "evaluation", hd95=False, model=model).figures()["all"]
    return {name: value for name, value in found.items() if name == "patients" or name.startswith("dice")}


def halves(volumes: list[Volume], root: Path, hospital: str) -> tuple[list[Volume], list[Volume]]:
    """The hospital's images to train on and those to score: no patient is in both."""
    people = [one for one in read_people(volumes, root).values() if one.hospital == hospital]
    if not people:
        raise SystemExit(f"{root} has no hospital '{hospital}'")

    def of(half: str) -> list[Volume]:
        names = {one.patient for one in people if one.half == half}
        return sorted((volume for volume in volumes if volume.patient in names), key=lambda one: one.patient)

    return of(CHOOSE), of(REPORT)


def first(volumes: list[Volume], count: int | None) -> list[Volume]:
    """The images of the first patients."""
    names = list(dict.fromkeys(volume.patient for volume in volumes))[:count]
    return [volume for volume in volumes if volume.patient in names]


def rows(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    volumes = [volume for volume in read_folder(given.data) if volume.label is not None]
    structures = {one.name: one.value for one in volumes[0].anatomy.structures}
    pool, scored_half = halves(volumes, given.data, given.hospital)
    out, test = given.out.absolute(), first(scored_half, given.test_patients)
    held_out = linked(out / "test", test)
    yield {"method": "ours", "labels": 0, **scored(out / "ours-0", held_out, shipped_model("acdc_unet"))}
    programs = environment(given.environment.absolute())
    for count in given.labels:
        train = first(pool, count)
        name = linked(out / f"train-{count}", train)
        began = time.process_time()
        model = finetune(name, out / f"model-{count}", hold_out=False).model
        budget = time.process_time() - began
        minutes = {"labels": len({one.patient for one in train}), "cpu_minutes": round(budget / 60, 2)}
        yield {"method": "ours", **minutes, **scored(out / f"ours-{count}", held_out, model)}
        for times in given.times:
            peer = NNUNet(programs, out / f"nnunet-{count}-{times}", given.batch)
            spent = peer.train(train, structures, times * budget)
            minutes |= {"cpu_minutes": round(spent["cpu_seconds"] / 60, 2)}
            minutes |= {"steps": spent["steps"], "batch": spent["batch"]}
            yield {"method": f"nnU-Net, {times} x", **minutes, **scored(peer.predict(test), held_out)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled patients in ACDC's layout")
    parser.add_argument("--hospital", required=True, help="as 'fclseg evaluate' names it")
    parser.add_argument("--labels", type=int, nargs="+", default=[1, 4, 1000], help="more than there are: all")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 10], help="nnU-Net's CPU time relative to ours")
    parser.add_argument("--batch", type=int, help="images in a step of nnU-Net (default: as it plans)")
    parser.add_argument("--test-patients", type=int, help="only the first so many")
    parser.add_argument("--environment", type=Path, default=Path("build/nnunet_env"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    table: list[dict[str, Any]] = []
    for row in rows(given):
        table.append(row)
        print(row, flush=True)
        columns = dict.fromkeys(name for one in table for name in one)
        with open(given.out / "peers.csv", "w", newline="") as stream:
            writer = csv.DictWriter(stream, list(columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)


if __name__ == "__main__":
    main()
