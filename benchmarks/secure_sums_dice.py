"""Dice of a network that four sites train together on labelled phantoms: plain, and with secure sums of 8 and 4 bits.

    python benchmarks/secure_sums_dice.py --out DIR [--rounds 16]

Every way has the same sites, seed and order of images (job ``finetune_federated``, preset `demo`, all sites in this
process). Scores are those of phantoms of other patients. An interrupted call continues.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from fclseg.anatomy.registry import get_anatomy
from fclseg.engine.in_process import open_in_process
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.finetune.dataset import open_labelled
from fclseg.finetune.evaluation import VolumeEvaluator
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset

SITES = ["site-1", "site-2", "site-3", "site-4"]
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sums_only, 8 bits": {"sums_only": True, "sum_bits": 8},
    "sums_only, 4 bits": {"sums_only": True, "sum_bits": 4},
}


def phantoms(out: Path, name: str, patients: int, seed: int) -> Path:
    if not (out / name / "done").exists():
        write_phantom(out / name / "data", patients=patients, frames=2, seed=seed)
        (out / name / "done").touch()
    return out / name / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=16)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    seen, unseen = phantoms(args.out, "seen", 20, 1), phantoms(args.out, "unseen", 8, 2)
    anatomy, preset = get_anatomy("acdc"), get_preset("demo")
    store = open_labelled(str(unseen), anatomy, preset.images.size, preset.images.spacing(anatomy), progress=False)
    shared = {"data": str(seen), "cache": str(args.out / "cache"), "device": "cpu"}
    for way, settings in WAYS.items():
        given = {
            "job": "finetune_federated",
            "preset": "demo",
            "rounds": args.rounds,
            "labels": 4,
            "fold": 0,
            **settings,
        }
        folder = RunFolder(args.out / "runs" / way.replace(", ", "-").replace(" ", "-"))
        run = open_in_process(RunSettings.read({**given, "run": folder.path.name}, {}), folder, SITES, shared)
        run.run(log=lambda text, way=way: print(f"{way}: {text}", flush=True))
        network = run.loop.method.online
        patients = sorted({volume.patient for volume in store.volumes})
        rows = VolumeEvaluator(network.eval(), store, patients, anatomy, hd95=False).evaluate().rows
        scores = [np.mean([value for key, value in row.items() if key.startswith("dice")]) for row in rows]
        print(f"{way}: Dice {np.mean(scores):.4f} over {len(scores)} volumes of {len(patients)} patients", flush=True)


if __name__ == "__main__":
    main()
