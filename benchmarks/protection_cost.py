"""What each protection costs in Dice, and whether the encoder tells who was trained on: the table of docs/privacy.md.

Every row is pre-trained in one process on the patients outside one fold, with its protection on. Then each site
fine-tunes alone with one labelled patient, and the fold's patients of all sites are scored. Membership compares the
pre-trained patients with the fold's. `fclseg study local --methods fcl --unseen --job-set perturb=0.5` does the same
with NVFlare, for one protection.

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
from torch import nn

from fclseg.anatomy.folders import read_folder
from fclseg.api.pretraining import gather
from fclseg.attacks.membership import infer_membership
from fclseg.data.sites import Splits
from fclseg.data.slices import open_store
from fclseg.federation.exchange import get_row
from fclseg.finetune.protocols import draw
from fclseg.flare.model import GlobalModel
from fclseg.flare.runs.run_folder import ENCODER, RunFolder
from fclseg.flare.settings import RunSettings
from fclseg.presets import Preset, get_preset
from fclseg.privacy.settings import NO_PROTECTION, PrivacySettings
from fclseg.study.cells import FROZEN, FULL, Dataset, Finetuning
from fclseg.study.execute import finetune_here

RANDOM = "random"
FEATURES = [
    *({"prototypes": count} for count in (1, 4, 16)),
    *({"perturb": share} for share in (0.5, 0.2, 0.8)),
    *({"mix": count} for count in (4, 2, 6)),
    *({"feature_noise": deviation} for deviation in (0.3, 0.1, 1.0)),
]
NOISE = [{"clip": 1.0, "sigma": sigma} for sigma in (0.01, 0.001, 0.1, 8.0)]
ROWS = [
    (RANDOM, NO_PROTECTION),
    ("fcl", NO_PROTECTION),
    ("fclopt_dp", NO_PROTECTION),
    ("fcl_own", NO_PROTECTION),
    *(("fcl", PrivacySettings(**values)) for values in FEATURES),
    *(("fcl_own", PrivacySettings(**values)) for values in NOISE),
    ("fcl", PrivacySettings(prototypes=1, feature_noise=1.0)),
]
"""No protection, each one at three strengths, and the noise that a budget needs."""

FOLD, SEED, LABELS = 0, 0, 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "splits", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--rounds", type=int, help="default: the preset's")
    parser.add_argument("--epochs", type=int, help="per round; default: the preset's")
    parser.add_argument("--modes", default=f"{FROZEN},{FULL}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    asked = {"rounds": arguments.rounds, "local_epochs": arguments.epochs}
    changes = {name: value for name, value in asked.items() if value is not None}
    bench = Bench(arguments.data, arguments.splits, get_preset(arguments.preset, **changes), arguments.out)
    for mode in arguments.modes.split(","):
        for job, privacy in ROWS:
            bench.row(job, privacy, mode)


class Bench:
    """Rows on one data folder, with one split."""

    def __init__(self, data: Path, splits: Path, preset: Preset, out: Path):
        self.preset, self.out, self.volumes, self.split = preset, out, read_folder(data), Splits.load(splits)
        self.data = Dataset(data, self.volumes[0].anatomy, splits, fingerprint="")
        self.file = out / "figures.json"
        self.known = json.loads(self.file.read_text()) if self.file.exists() else {}

    def row(self, job: str, privacy: PrivacySettings, mode: str) -> None:
        """Pre-train unless that has been done, and fine-tune at every site in one mode."""
        name = " ".join([job, *(f"{part}={value:g}" for part, value in privacy.shown().items())])
        encoder = None
        if job != RANDOM:
            folder = self.out / name.replace(" ", "-")
            encoder = folder / ENCODER
            self.figure(f"{name} pre-training", partial(self.pretrain, job, privacy, folder))
        for site in self.split.sites:
            self.figure(f"{name} {mode} {site}", partial(self.dice, job, site, mode, encoder))
        scores = [self.known[f"{name} {mode} {site}"]["dice"] for site in self.split.sites]
        print(f"{name} {mode}: Dice {np.mean(scores):.3f}, {np.round(scores, 3).tolist()}", flush=True)

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
        row, rounds = get_row(job), self.preset.pretraining.rounds
        federation = gather(row, self.volumes, self.split, self.preset, SEED, privacy=privacy, fold=FOLD)
        for number in range(rounds):
            results = federation.round(number).values()
        (method,) = federation.finish().values()
        changes = {"local_epochs": self.preset.pretraining.local_epochs}
        values = {"job": job, "preset": self.preset.name, "rounds": rounds, "changes": changes, "fold": FOLD}
        settings, run = RunSettings.read({**values, **privacy.shown()}, {}), RunFolder(folder)
        run.open({"settings": settings.to_dict()}, fresh=True)
        run.save(GlobalModel(row, federation.means, federation.others, next_round=rounds), {"round": rounds - 1})
        run.finish(method, settings)
        return self.membership(method.online) | {
            "loss": float(np.mean([one.loss for one in results])),
            "feature_std": float(np.mean([one.feature_std for one in results])),
        }

    def membership(self, network: nn.Module) -> dict[str, float]:
        """Of all patients, because the attack learns nothing from those that the attacker owns."""
        images = self.preset.images
        spacing = images.spacing(self.data.anatomy)
        store = open_store(self.volumes, image_size=images.size, spacing=spacing, progress=False)
        members = [one for site in self.split.sites for one in self.split.training(site, FOLD)]
        others = [one for one in store.patients if one not in set(members)]
        found = infer_membership(network, store, self.preset, members, others)
        return {"auc_patients": found.patients, "auc_slices": found.slices}

    def dice(self, job: str, site: str, mode: str, encoder: Path | None) -> dict[str, float]:
        cell = Finetuning("local", job, LABELS, site, FOLD, SEED, mode, self.preset, self.data, None)
        result = finetune_here(cell, encoder, draw("local", self.split, site, FOLD, LABELS, SEED))
        return {"dice": result.evaluation.mean_dice}


if __name__ == "__main__":
    main()
