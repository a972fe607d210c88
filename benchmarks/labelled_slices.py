"""Dice on patients who were not labelled, against how many slices were labelled, of whom, and in which order.

Every second patient of the folder can be labelled with the experts' label maps; the others are scored, on the network's
grid and without averaging over rotations. Every training starts from the shipped weights. Three ways to spend a number
of slices are compared:

    whole     all slices of as few hearts as possible: patient by patient, both phases (as many hearts as fit)
    random    slices with the organ's neighbourhood, drawn at random over all hearts of the pool
    proposed  the order in which ``fclseg label`` proposes them, with the shipped network's doubt and features

Results are kept in --out, one file per training, so that an interrupted benchmark continues.

    python benchmarks/labelled_slices.py --data ACDC --out DIR [--slices 10 20 40] [--seeds 3] [--patients 26]
"""

import argparse
import json
import shutil
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import torch

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.nifti import read_voxels
from fclseg.anatomy.records import Volume
from fclseg.data.preprocess import UNLABELLED
from fclseg.finetune.run import FinetuneSpec, finetune
from fclseg.labelling.candidates import candidates_of
from fclseg.labelling.outlines import Outliner
from fclseg.labelling.proposal import Candidate, Key, propose
from fclseg.resources import shipped_model

WAYS = ("whole", "random", "proposed")


def order(way: str, candidates: list[Candidate], depths: dict[tuple[str, int | None], int], seed: int) -> list[Key]:
    """All slices of the pool in the order in which they are labelled."""
    source = np.random.default_rng(seed)
    if way == "proposed":
        return [candidate.key for candidate in propose(candidates, (), len(candidates))]
    if way == "random":
        return [candidates[i].key for i in source.permutation(len(candidates))]
    patients = source.permutation(sorted({patient for patient, _ in depths}))
    return [
        (patient, frame, number)
        for name in patients
        for (patient, frame), depth in depths.items()
        if patient == name
        for number in range(depth)
    ]


def write_labels(folder: Path, volumes: list[Volume], pool: set[str], keys: set[Key]) -> None:
    """A data set in which the chosen slices of the pool are labelled; the other patients are labelled as they are."""
    for volume in volumes:
        target = folder / volume.patient
        target.mkdir(parents=True, exist_ok=True)
        (target / volume.image.name).symlink_to(volume.image)
        if not (target / "Info.cfg").exists():
            shutil.copyfile(volume.image.parent / "Info.cfg", target / "Info.cfg")
        assert volume.label is not None
        if volume.patient not in pool:
            (target / volume.label.name).symlink_to(volume.label)
            continue
        inside = np.array(volume.label_storage.inside(read_voxels(volume.label)), dtype=np.uint8)
        away = [n for n in range(inside.shape[2]) if (volume.patient, volume.frame, n) not in keys]
        inside[:, :, away] = UNLABELLED
        if len(away) < inside.shape[2]:
            source = nib.load(volume.label)
            image = nib.Nifti1Image(volume.label_storage.outside(inside), source.affine, source.header)
            image.set_data_dtype(np.uint8)
            nib.save(image, target / volume.label.name)


def train(folder: Path, volumes: list[Volume], pool: set[str], keys: list[Key], seed: int) -> dict:
    shutil.rmtree(folder, ignore_errors=True)
    write_labels(folder, volumes, pool, set(keys))
    held_out = tuple(sorted({volume.patient for volume in volumes} - pool))
    began = time.process_time()
    spec = FinetuneSpec(
        folder,
        tuple(sorted({patient for patient, _, _ in keys})),
        held_out,
        pretrained_network=shipped_model("acdc_unet"),
        seed=seed,
    )
    result = finetune(spec)
    shutil.rmtree(folder)
    hearts = len({patient for patient, _, _ in keys})
    return {"dice": result.evaluation.dice, "hearts": hearts, "cpu_seconds": round(time.process_time() - began)}


def table(out: Path) -> str:
    """Mean Dice and the range over seeds, by way and number of slices."""
    rows: dict[tuple[str, int], list[dict]] = {}
    for path in sorted(out.glob("*.json")):
        way, slices, _ = path.stem.split("-")
        rows.setdefault((way, int(slices)), []).append(json.loads(path.read_text()))
    lines = [
        "| way | slices | hearts | mean Dice (lowest to highest of the seeds) | RV, MYO, LV |",
        "|---|---|---|---|---|",
    ]
    for (way, slices), found in sorted(rows.items(), key=lambda item: (item[0][1], item[0][0])):
        means = [float(np.mean(list(one["dice"].values()))) for one in found]
        parts = ", ".join(f"{np.mean([one['dice'][name] for one in found]):.3f}" for name in found[0]["dice"])
        hearts = "/".join(str(one["hearts"]) for one in found)
        span = f"{np.mean(means):.3f} ({min(means):.3f} to {max(means):.3f}, n = {len(means)})"
        lines.append(f"| {way} | {slices} | {hearts} | {span} | {parts} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="labelled folder in the layout of ACDC")
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    parser.add_argument("--slices", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, help="stop after this many trainings (run again to continue)")
    parser.add_argument("--patients", type=int, help="use only so many patients of the folder, the first ones")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    volumes = [volume for volume in read_folder(arguments.data) if volume.label]
    names = sorted({volume.patient for volume in volumes})
    names = names[: arguments.patients]
    pool = set(names[::2])
    volumes = [volume for volume in volumes if volume.patient in names]
    labellable = [volume for volume in volumes if volume.patient in pool]
    outlines = dict(Outliner(shipped_model("acdc_unet")).make(labellable))
    candidates = candidates_of(outlines)
    depths = {(volume.patient, volume.frame): outlines[volume].labels.shape[2] for volume in labellable}
    cells = [(way, count, seed) for seed in range(arguments.seeds) for count in arguments.slices for way in WAYS]
    cells.insert(0, ("none", 0, 0))
    missing = [cell for cell in cells if not (arguments.out / "{}-{}-{}.json".format(*cell)).exists()]
    for way, count, seed in missing[: arguments.most]:
        keys = order(way, candidates, depths, seed)[:count] if count else []
        found = (
            train(arguments.out / f"folder-{way}-{count}-{seed}", volumes, pool, keys, seed)
            if count
            else score_start(volumes, pool)
        )
        (arguments.out / f"{way}-{count}-{seed}.json").write_text(json.dumps(found))
        print(way, count, seed, {name: round(value, 3) for name, value in found["dice"].items()}, flush=True)
    if len(missing) <= (arguments.most or len(missing)):
        print(table(arguments.out))


def score_start(volumes: list[Volume], pool: set[str]) -> dict:
    """The shipped weights on the same patients in the same way, without training."""
    from fclseg.data.slices import open_store
    from fclseg.finetune.evaluation import VolumeEvaluator
    from fclseg.networks.model_file import load_model

    model = load_model(shipped_model("acdc_unet"))
    held_out = [volume for volume in volumes if volume.patient not in pool]
    store = open_store(held_out, image_size=model.image_size, spacing=model.spacing, progress=False)
    evaluator = VolumeEvaluator(model.network, store, store.patients, model.anatomy, hd95=False)
    return {"dice": evaluator.evaluate().dice, "hearts": 0, "cpu_seconds": 0}


if __name__ == "__main__":
    main()
