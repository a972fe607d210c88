"""What mixed precision costs in Dice: FCLOpt-PTNU-DP pre-trained in float32 and in bfloat16, then fine-tuned.

    python benchmarks/bfloat16_dice.py --data ACDC --splits splits.json --rounds 5 --folds 2 --out DIR

Both encoders are fine-tuned alike: each site alone, one labelled patient, frozen encoder and whole network, scored on
the held-out patients of all sites. On a CPU without bfloat16, torch computes the same numbers with ordinary
instructions. That takes several times as long as float32, so the times say nothing there. A figure that is in
DIR/figures.json is not computed again.
"""

import argparse
import json
import statistics
from pathlib import Path

import torch

from fclseg.anatomy.folders import read_folder
from fclseg.api import pretrain
from fclseg.data.sites import Splits
from fclseg.finetune.protocols import draw
from fclseg.methods import training
from fclseg.presets import get_preset
from fclseg.study.cells import FROZEN, FULL, Dataset, Finetuning
from fclseg.study.execute import finetune_here

JOB, LABELS, SEED = "fclopt_dp", 1, 0
PRECISIONS = {"float32": False, "bfloat16": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "splits", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folds", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    training.computes_in_bfloat16 = lambda device, on_cpu: on_cpu  # also on CPUs that have to emulate it
    splits, anatomy = Splits.load(arguments.splits), read_folder(arguments.data)[0].anatomy
    data = Dataset(arguments.data, anatomy, arguments.splits, fingerprint="")
    plain = get_preset(arguments.preset, rounds=arguments.rounds)
    file = arguments.out / "figures.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    encoders = {}
    for name, asked in PRECISIONS.items():
        preset, folder = plain.changed({"pretraining.bfloat16": asked}), arguments.out / name
        encoders[name] = folder / "encoder.safetensors"
        if not encoders[name].exists():
            losses = pretrain(JOB, data.root, folder, splits=data.splits, preset=preset, seed=SEED).losses
            print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}", flush=True)
    places = [(mode, fold, site) for mode in (FROZEN, FULL) for fold in range(arguments.folds) for site in splits.sites]
    for mode, fold, site in places:
        for name, encoder in encoders.items():
            key = f"{name} {mode} {fold} {site}"
            if key not in known:
                cell = Finetuning("local", JOB, LABELS, site, fold, SEED, mode, plain, data, None)
                chosen = draw("local", splits, site, fold, LABELS, SEED)
                known[key] = finetune_here(cell, encoder, chosen).evaluation.mean_dice
                file.write_text(json.dumps(known, indent=1) + "\n")
                print(key, round(known[key], 4), flush=True)
    print(table(known))


def table(known: dict[str, float]) -> str:
    """Means, and the mean difference of pairs with its standard error."""
    lines = ["| mode | float32 | bfloat16 | difference | pairs |", "|---|---:|---:|---:|---:|"]
    for mode in (FROZEN, FULL):
        places = [key.split(" ", 1)[1] for key in known if key.startswith(f"bfloat16 {mode} ")]
        first, second = ([known[f"{name} {place}"] for place in places] for name in PRECISIONS)
        differences = [after - before for before, after in zip(first, second, strict=True)]
        error = statistics.stdev(differences) / len(differences) ** 0.5
        means = f"{statistics.mean(first):.3f} | {statistics.mean(second):.3f}"
        lines.append(f"| {mode} | {means} | {statistics.mean(differences):+.3f} ± {error:.3f} | {len(places)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
