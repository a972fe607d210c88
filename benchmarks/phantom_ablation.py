"""What each part of the phantom adds: leave it out, train on the rest, and segment real patients without any label.

    python benchmarks/phantom_ablation.py --data ACDC --out DIR [--seeds 2] [--only contrasts texture]

Every network is trained on 100 phantoms in the same number of steps, a third of the shipped weights', and scored
without refinement. A seed changes hearts, scanners and training. What is in DIR/figures.json is not computed again.
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from scipy import stats

from fclseg.finetune.dataset import open_labelled
from fclseg.finetune.evaluation import VolumeEvaluator
from fclseg.finetune.weights import Recipe, train_on
from fclseg.networks.model_file import load_model
from fclseg.phantom import body, dataset
from fclseg.phantom.body import Contrast, Plane
from fclseg.phantom.heart import Heart
from fclseg.phantom.scanner import Scanner
from fclseg.phantom.slices import FRAMES, SEED

ANATOMY = "acdc"
WHOLE = "whole phantom"
PATIENTS, EPOCHS = 100, 5


@dataclass(frozen=True)
class Without:
    """What is held fixed or left out."""

    heart: dict[str, Any] = field(default_factory=dict)  # attributes that are the same in every heart
    scanner: dict[str, Any] = field(default_factory=dict)  # attributes that are the same in every scanner
    group: str | None = None  # the only group of patients
    painters: tuple[str, ...] = ()  # functions of phantom/body.py that paint nothing
    flat: bool = False  # tissues without texture
    scanners: int = PATIENTS
    patients: int = PATIENTS


MEAN_CONTRAST = Contrast(blood=0.78, myocardium=0.29, fat=0.8, muscle=0.26, liver=0.35, lung=0.09)

VARIANTS = {
    WHOLE: Without(),
    "papillary muscles": Without(heart={"papillary": ()}),
    "irregular outlines": Without(
        heart={"shape": ((0, 0),) * 3, "rv_shape": ((0, 0),) * 2, "unevenness": (0, 0), "twist": 0}
    ),
    "closing apex, wall gain": Without(heart={"inward": 0, "wall_gain": 0}),
    "pathologies": Without(group="NOR"),
    "texture": Without(flat=True),
    "patches in the lung": Without(painters=("_clutter",)),
    "abdomen": Without(painters=("_abdomen",)),
    "pericardial fat": Without(painters=("_pericardium",)),
    "contrasts": Without(scanner={"contrast": MEAN_CONTRAST, "gamma": 1.0}),
    "coil shading": Without(scanner={"bias": 0.0}),
    "noise and blur": Without(scanner={"noise": 0.0, "blur": 0.0}),
    "pixel sizes, slice gaps": Without(scanner={"pixel": 1.5, "slice_spacing": 9.0}),
    "100 scanners (1 instead)": Without(scanners=1),
    "100 patients (25 instead)": Without(scanners=25, patients=25),
}
"""By what is left out."""


@contextmanager
def replaced(module: ModuleType | type, **values: Any) -> Iterator[None]:
    """Other attributes of a module or class, for as long as the block runs."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def write(folder: Path, without: Without, seed: int) -> None:
    """A data set of phantoms that lack something."""
    draw_heart, draw_scanner = dataset.draw_heart, dataset.draw_scanner

    def heart(seed: int, patient: int, family) -> Heart:
        groups = {without.group: family.groups[without.group]} if without.group else family.groups
        return replace(draw_heart(seed, patient, replace(family, groups=groups)), **without.heart)

    def scanner(seed: int, site: int, family) -> Scanner:
        return replace(draw_scanner(seed, site, family), **without.scanner)

    def flat(plane: Plane, rng: np.random.Generator, sigma: float) -> np.ndarray:
        return np.zeros(plane.shape, dtype=np.float32)

    nothing = {name: lambda *_: None for name in without.painters}
    with (
        replaced(dataset, draw_heart=heart, draw_scanner=scanner),
        replaced(body, **nothing),
        replaced(Plane, texture=flat if without.flat else Plane.texture),
    ):
        dataset.write_phantom(folder, ANATOMY, without.patients, seed, sites=without.scanners, frames=FRAMES)


def measure(without: Without, seed: int, folder: Path, data: Path) -> dict[str, Any]:
    """Dice by patient and by structure on real patients, and minutes."""
    began = time.monotonic()
    if not folder.exists():
        write(folder, without, SEED + seed)
    recipe = Recipe(without.patients, EPOCHS * PATIENTS // without.patients, seed=seed)
    model = load_model(train_on(folder, recipe, ANATOMY, folder.with_suffix(".trained")), ANATOMY)
    minutes = (time.monotonic() - began) / 60
    store = open_labelled(str(data), model.anatomy, model.image_size, model.spacing, progress=False)
    found = VolumeEvaluator(model.network, store, store.patients, model.anatomy, hd95=False).run()
    names = [f"dice_{name}" for name in found.structures]
    patients = {
        patient: float(np.mean([[row[name] for name in names] for row in found.rows if row["patient"] == patient]))
        for patient in sorted({row["patient"] for row in found.rows})
    }
    return {"patients": patients, "structures": found.dice, "minutes": minutes}


def line(name: str, known: dict[str, dict], seeds: int) -> str:
    """Mean over seeds, by structure, each seed, and the paired difference to the whole phantom over the patients."""
    runs, whole = ([known[f"{one} {seed}"] for seed in range(seeds)] for one in (name, WHOLE))
    dice = [float(np.mean(list(run["patients"].values()))) for run in runs]
    structures = [np.mean([run["structures"][key] for run in runs]) for key in runs[0]["structures"]]
    parts = [f"{np.mean(dice):.3f}", *(f"{value:.3f}" for value in structures), " / ".join(f"{d:.3f}" for d in dice)]
    if name != WHOLE:
        here, there = (np.mean([list(run["patients"].values()) for run in group], axis=0) for group in (runs, whole))
        lost = here - there
        half = stats.t.ppf(0.975, len(lost) - 1) * stats.sem(lost)
        p = stats.wilcoxon(lost).pvalue
        parts.append(f"{lost.mean():+.3f} ({lost.mean() - half:+.3f} to {lost.mean() + half:+.3f}, p {p:.3f})")
    return f"{name}: " + ", ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="labelled patients in the layout of ACDC")
    parser.add_argument("--out", type=Path, required=True, help="folder for phantoms, networks and figures")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS), metavar="PART")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "figures.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    chosen = list(dict.fromkeys((WHOLE, *arguments.only)))
    for seed in range(arguments.seeds):
        for name in chosen:
            if (key := f"{name} {seed}") not in known:
                known[key] = measure(VARIANTS[name], seed, arguments.out / key.replace(" ", "_"), arguments.data)
                file.write_text(json.dumps(known, indent=2))
                print(f"{key}: {np.mean(list(known[key]['patients'].values())):.3f}", flush=True)
    print("Dice; by structure; by seed; difference to the whole phantom (95 % over patients, Wilcoxon)")
    for name in chosen:
        print(line(name, known, arguments.seeds))


if __name__ == "__main__":
    main()
