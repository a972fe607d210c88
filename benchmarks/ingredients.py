"""What each ingredient of the shipped weights adds: networks trained on phantoms without it, scored on real patients.

Every variant has the same short schedule, two seeds and the same patients: the half of each hospital and group that was
not used for choosing anything, segmented as ``fclseg segment`` does, scored on the original grid.

    python benchmarks/ingredients.py --data ACDC MNMS --out DIR [--variants whole "3 mm"] [--seeds 0 1] [--half report]

About ten minutes of one core for a network. Each network and each score is a file in --out, so that an interrupted run
continues.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from labelled_slices import score

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.registry import get_anatomy
from fclseg.evaluation.people import HALVES, REPORT, read_people
from fclseg.finetune.phantom_stream import PhantomStream
from fclseg.finetune.phantom_training import Schedule, train_on_phantoms
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.model_file import TrainedModel, write_model
from fclseg.phantom import body, heart, right_ventricle
from fclseg.presets import get_preset

SCHEDULE = Schedule(steps=2400, decay=600)
SEED = 5309


@dataclass(frozen=True)
class Variant:
    """What is different from the whole recipe."""

    what: str
    channels: tuple[int, ...] = (24, 48, 96, 192)
    patch: int = 2
    coarser: int = 1  # pixels of so many times the size, in as large a window
    settle: bool = True  # cross-entropy alone while the rate falls
    replaced: dict[str, Any] = field(default_factory=dict)  # constants of the phantom, MODULE.NAME
    refined: bool = True


def _alike(group: heart.Group) -> heart.Group:
    """A heart of the sizes that the first phantom had: thick walls, a small right ventricle."""
    wall = (max(group.wall[0], 7.0), max(group.wall[1], 11.0))
    return replace(group, wall=wall, rv_volume=(0.4, 1.05), rv_fraction=(0.2, 0.6))


NOTHING = (0.0, 0.0)

VARIANTS = {
    "whole": Variant("the recipe of the shipped weights, a third of the steps"),
    "half width": Variant("12-24-48-96 channels", channels=(12, 24, 48, 96)),
    "more width": Variant("32-64-128-256 channels", channels=(32, 64, 128, 256)),
    "3 mm": Variant("pixels of 3 mm, as large a network", patch=1, coarser=2),
    "sizes": Variant(
        "walls of 7 mm and more, right ventricles of .4 to 1.05 of the left",
        replaced={"heart.GROUPS": {name: _alike(group) for name, group in heart.GROUPS.items()}},
    ),
    "still valves": Variant(
        "valves that stay where they are, and nothing above them",
        replaced={
            "heart.VALVE_MOTION": NOTHING,
            "right_ventricle.VALVE_MOTION": NOTHING,
            "body.draw_vessels": lambda rng, plane, one: ([(np.full(plane.shape, 1e3, np.float32), 1.0)],) * 2,
        },
    ),
    "outlines": Variant(
        "outlines where the image has its edges, not where experts draw them",
        replaced={
            f"body.{name}": NOTHING
            for name in ("RIM", "LV_LAYER", "RV_LAYER", "COMPACTION", "VALVE_TILT", "VALVE_MARGIN", "RV_APEX")
        },
    ),
    "soft Dice": Variant("soft Dice and cross-entropy to the end", settle=False),
    "one view": Variant("no average over rotated and scaled views, no clean-up of components", refined=False),
}
MODULES = {"heart": heart, "body": body, "right_ventricle": right_ventricle}


@contextmanager
def phantom_with(replaced: dict[str, Any]) -> Iterator[None]:
    """Other constants of the phantom. Groups are changed in place, because families keep the same table."""
    with ExitStack() as stack:
        for name, value in replaced.items():
            module, constant = MODULES[name.partition(".")[0]], name.partition(".")[2]
            now = getattr(module, constant)
            stack.enter_context(
                patch.dict(now, value) if isinstance(now, dict) else patch.object(module, constant, value)
            )
        yield


def train(variant: Variant, seed: int, path: Path) -> Path:
    """The network of one variant and seed as a model file."""
    if path.is_file():
        return path
    preset, anatomy = get_preset("standard"), get_anatomy("acdc")
    size = preset.images.size // variant.coarser
    spacing = preset.images.spacing(anatomy) * variant.coarser
    network = FreezableUNet(variant.channels, anatomy.classes, SEED + seed, patch=variant.patch)
    stream = PhantomStream(SEED + seed, size, spacing, preset.pretraining.batch_size)
    schedule = SCHEDULE if variant.settle else _Unsettled(SCHEDULE.steps, SCHEDULE.decay)
    with phantom_with(variant.replaced):
        trained = train_on_phantoms(network, stream, schedule, path.with_suffix(".pt"))
    # The file's preset says how to build the network, so a width that no preset has is stored as it is.
    write_model(path, TrainedModel(trained, anatomy, size, spacing, "standard"))
    return path


class _Unsettled(Schedule):
    def settles(self, step: int) -> bool:
        return False


def scored(model: Path, variant: Variant, folders: Sequence[Path], half: str) -> dict[str, dict[str, float]]:
    """Dice of each patient of one half of every hospital and group, by "hospital/patient"."""
    found = {}
    for folder in folders:
        volumes = [volume for volume in read_folder(folder) if volume.label]
        people = read_people(volumes, folder)
        wanted = [volume for volume in volumes if people[volume.patient].half == half]
        for patient, row in score(model, wanted, people, variant.refined).items():
            found[f"{people[patient].hospital}/{patient}"] = row
    return found


def mean_over_hospitals(rows: dict[str, dict[str, float]], name: str = "dice") -> float:
    hospitals: dict[str, list[float]] = {}
    for key, row in rows.items():
        hospitals.setdefault(key.split("/")[0], []).append(row[name])
    return float(np.mean([np.mean(values) for values in hospitals.values()]))


def line(name: str, rows: dict[str, dict[str, float]], whole: dict[str, dict[str, float]] | None) -> str:
    dice = mean_over_hospitals(rows)
    parts = " ".join(f"{mean_over_hospitals(rows, f'dice_{one}'):.3f}" for one in ("RV", "MYO", "LV"))
    less = "" if whole is None else f"{dice - mean_over_hospitals(whole):+.3f}"
    return f"{name},{len(rows)},{dice:.4f},{less},{parts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="labelled folders in the layout of ACDC")
    parser.add_argument("--out", type=Path, required=True, help="folder for networks and scores")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--half", choices=HALVES, default=REPORT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    whole: dict[int, dict[str, dict[str, float]]] = {}
    print("variant and seed,patients,Dice,difference to whole,RV MYO LV")
    for seed in given.seeds:
        for name in given.variants:
            variant = VARIANTS[name]
            trained = "whole" if name == "one view" else name
            model = train(VARIANTS[trained], seed, given.out / f"{trained} {seed}.safetensors")
            kept = given.out / f"{name} {seed} {given.half}.json"
            if not kept.is_file():
                kept.write_text(json.dumps(scored(model, variant, given.data, given.half)))
            rows = json.loads(kept.read_text())
            if name == "whole":
                whole[seed] = rows
            print(line(f"{name} {seed}", rows, whole.get(seed)), flush=True)


if __name__ == "__main__":
    main()
