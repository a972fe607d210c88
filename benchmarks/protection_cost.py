"""What each protection costs in Dice, and whether the encoder tells who was trained on: the table of docs/privacy.md.

Every row is pre-trained in one process on the patients outside one fold, with its protection on. Then each site
fine-tunes alone with one labelled patient, and the fold's patients of all sites are scored. Membership compares the
pre-trained patients with the fold's. `fclseg study local --methods fcl --unseen --job-set perturb=0.5` measures the
Dice of one protection with NVFlare.

    python benchmarks/protection_cost.py --data ACDC --splits splits.json --rounds 10 --out DIR

A figure that is in DIR/figures.json already is not computed again.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fclseg.anatomy.folders import read_folder
from fclseg.attacks.membership import infer_membership
from fclseg.attacks.target import open_run
from fclseg.data.sites import Splits
from fclseg.data.slices import open_store
from fclseg.engine.run_folder import ENCODER
from fclseg.finetune.protocols import draw
from fclseg.presets import Preset, get_preset
from fclseg.privacy.protections import NO_PROTECTION, PrivacySettings
from fclseg.study.cells import FROZEN, FULL, Dataset, Finetuning
from fclseg.study.execute import finetune_here
from fclseg.study.federated import run_here
from fclseg.study.job_options import JobOptions

RANDOM = "random"
STRENGTHS = {
    "prototypes": (1, 4, 16),
    "mix": (4, 2, 6),
    "feature_noise": (0.3, 0.1, 1.0),
    "perturb": (0.5, 0.2, 0.8),
    "sigma": (0.01, 0.001, 0.1),
}


def _row(name: str, strength: float) -> tuple[str, PrivacySettings]:
    values = {name: strength} | ({"clip": 1.0} if name == "sigma" else {})
    return "fcl_own" if name == "sigma" else "fcl", PrivacySettings(**values)


ROWS = [
    (RANDOM, NO_PROTECTION),
    *((job, NO_PROTECTION) for job in ("fcl", "fcl_own", "fclopt_dp")),
    *(_row(name, strengths[0]) for name, strengths in STRENGTHS.items()),
    ("fcl_own", PrivacySettings(clip=1.0, sigma=8.0)),
    ("fcl", PrivacySettings(prototypes=1, feature_noise=1.0)),
    *(_row(name, strengths[number]) for number in (1, 2) for name, strengths in STRENGTHS.items()),
]
"""No protection, each one at a middle strength, the settings that a budget needs, and the other strengths."""

FOLD, SEED, LABELS, MEMBERSHIP = 0, 0, 1, "membership"
FIGURES = (FROZEN, MEMBERSHIP, FULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "splits", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--rounds", type=int, help="default: the preset's")
    parser.add_argument("--epochs", type=int, help="per round; default: the preset's")
    parser.add_argument("--figures", default=",".join(FIGURES), help="which ones, in this order (default: all)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    asked = {"rounds": arguments.rounds, "local_epochs": arguments.epochs}
    preset = get_preset(arguments.preset, **{name: value for name, value in asked.items() if value is not None})
    bench = Bench(arguments.data, arguments.splits, preset, arguments.out)
    for figure in arguments.figures.split(","):
        for site in [MEMBERSHIP] if figure == MEMBERSHIP else bench.split.sites:
            for job, privacy in ROWS:
                bench.row(job, privacy, figure, site)


class Bench:
    """Rows on one data folder, with one split."""

    def __init__(self, data: Path, splits: Path, preset: Preset, out: Path):
        self.preset, self.out, self.volumes, self.split = preset, out, read_folder(data), Splits.load(splits)
        self.data = Dataset(data, self.volumes[0].anatomy, splits, fingerprint="")
        self.file = out / "figures.json"
        self.known = json.loads(self.file.read_text()) if self.file.exists() else {}

    def row(self, job: str, privacy: PrivacySettings, figure: str, site: str) -> None:
        """One figure of a row. It is pre-trained first unless that has been done."""
        name = " ".join([job, *(f"{part}={value:g}" for part, value in privacy.shown().items())])
        folder = self.out / name.replace(" ", "-")
        if job != RANDOM:
            self.figure(f"{name} pre-training", partial(self.pretrain, job, privacy, folder))
        if figure != MEMBERSHIP:
            encoder = None if job == RANDOM else folder / ENCODER
            self.figure(f"{name} {figure} {site}", partial(self.dice, job, site, figure, encoder))
        elif job != RANDOM:
            self.figure(f"{name} {figure}", partial(self.membership, folder))

    def figure(self, key: str, compute) -> None:
        """Compute it, unless it is known, and store it with the processor time that it took."""
        if key not in self.known:
            before = time.process_time()
            self.known[key] = compute() | {"seconds": round(time.process_time() - before, 1)}
            self.out.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(self.known, indent=1) + "\n")
            print(key, self.known[key], flush=True)

    def pretrain(self, job: str, privacy: PrivacySettings, folder: Path) -> dict[str, float]:
        """Pre-train, and keep the networks as a run folder that `fclseg attack` reads."""
        options = JobOptions.make(privacy.shown(), ())
        last = run_here(job, folder, self.data, self.preset, SEED, options, fold=FOLD).rounds()[-1]
        reports = [report for report in last["sites"].values() if "loss" in report]
        return {name: float(np.mean([report[name] for report in reports])) for name in ("loss", "feature_std")}

    def membership(self, folder: Path) -> dict[str, float]:
        """Of all patients, because the attack learns nothing from those that the attacker owns."""
        images = self.preset.images
        spacing = images.spacing(self.data.anatomy)
        store = open_store(self.volumes, image_size=images.size, spacing=spacing, progress=False)
        members = [one for site in self.split.sites for one in self.split.training(site, FOLD)]
        others = [one for one in store.patients if one not in set(members)]
        found = infer_membership(open_run(folder)[1].online, store, self.preset, members, others)
        return {"auc_patients": found.patients, "auc_slices": found.slices}

    def dice(self, job: str, site: str, mode: str, encoder: Path | None) -> dict[str, float]:
        cell = Finetuning("local", job, LABELS, site, FOLD, SEED, mode, self.preset, self.data, None)
        result = finetune_here(cell, encoder, draw("local", self.split, site, FOLD, LABELS, SEED))
        return {"dice": result.evaluation.mean_dice}


if __name__ == "__main__":
    main()
