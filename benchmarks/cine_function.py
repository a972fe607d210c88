"""Whole cycles without named phases: are ED and ES found, and is the ejection fraction that of the labels?

    python benchmarks/cine_function.py --patients 8 [--sites 8 --seed 2000]        # phantoms
    python benchmarks/cine_function.py --data SUNNYBROOK --csv cine.csv    # folders with _4d, Info.cfg and label maps

    fclseg data phantom --out labelled --patients 16 --sites 4 --seed 4000
    fclseg finetune labelled --out mine
    python benchmarks/cine_function.py --patients 24 --first 17 --sites 4 --seed 4000 --model mine/model.safetensors

Each cycle is segmented as a single 4D file, without the Info.cfg that names its phases. The last way measures a model
that was fine-tuned on other patients of the same four scanners.
"""

import argparse
import csv
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from fclseg.inference.cases import find_cases
from fclseg.inference.patients import Inference
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import load_model
from fclseg.phantom.dataset import write_phantom
from fclseg.resources import shipped_model

VALUES = {"LV": 3, "RV": 1}


def truth(folder: Path) -> tuple[dict[str, int], dict[str, float]]:
    """The named phases, and the ejection fraction from counting voxels in the true label maps."""
    lines = (line.split(":") for line in (folder / "Info.cfg").read_text().splitlines())
    phases = {name.strip(): int(value) for name, value in lines if name.strip() in ("ED", "ES")}
    labels = {
        phase: np.asarray(nib.load(next(folder.glob(f"*_frame{frame:02d}_gt.nii.gz"))).dataobj)
        for phase, frame in phases.items()
    }
    amounts = {name: [int((labels[phase] == value).sum()) for phase in ("ED", "ES")] for name, value in VALUES.items()}
    known = {name: (first, last) for name, (first, last) in amounts.items() if first and last}
    return phases, {name: 100 * (first - last) / first for name, (first, last) in known.items()}


def apart(first: int | None, second: int, frames: int) -> int:
    """Frames between two phases of a cycle, whose last frame is followed by its first."""
    return frames if first is None else min((first - second) % frames, (second - first) % frames)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="number of the first patient to segment")
    parser.add_argument("--sites", type=int, default=1, help="number of scanners")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--data", type=Path, help="real patients instead of phantoms")
    parser.add_argument("--model", type=Path, help="default: the shipped one")
    parser.add_argument("--csv", type=Path, help="write one row per patient")
    arguments = parser.parse_args()
    segmenter = Segmenter(load_model(arguments.model or shipped_model("acdc_unet")))
    errors: dict[str, list[float]] = {name: [] for name in VALUES}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if arguments.data is None:
            patients = write_phantom(place / "phantom", "acdc", arguments.patients, arguments.seed, arguments.sites)
        else:
            patients = sorted(cycle.parent for cycle in arguments.data.glob("*/*_4d.nii.gz"))
        for folder in patients[arguments.first - 1 :]:
            phases, fractions = truth(folder)
            scan = place / f"{folder.name}.nii.gz"
            shutil.copy2(next(folder.glob("*_4d.nii.gz")), scan)
            (result,) = Inference(segmenter, find_cases(str(scan)), place / f"out_{folder.name}", quiet=True).run()
            found = {phase: one.frame for phase, one in result.phases.items()}
            row: dict[str, Any] = {"patient": folder.name}
            for phase, frame in phases.items():
                row |= {phase: found.get(phase), f"true {phase}": frame}
                row[f"{phase} apart"] = apart(found.get(phase), frame, len(result.volumes))
            for structure, known in fractions.items():
                value = result.value(f"{structure} ejection fraction")
                row |= {f"{structure} EF": value and round(value.number, 1), f"true {structure} EF": round(known, 1)}
                if value is not None:
                    errors[structure].append(value.number - known)
            rows.append(row)
            print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    if arguments.csv is not None:
        with open(arguments.csv, "w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    errors = {structure: values for structure, values in errors.items() if values}
    for structure, values in errors.items():
        print(
            f"{structure} ejection fraction: mean error {np.mean(values):+.1f}, "
            f"mean absolute {np.abs(values).mean():.1f}, largest {np.abs(values).max():.1f} points "
            f"in {len(values)} patients"
        )
        close = sum(abs(value) <= 5 for value in values)
        print(f"{structure} ejection fraction within 5 points: {close} of {len(values)}")
    right = sum(row["ED apart"] <= 1 and row["ES apart"] <= 1 for row in rows)
    print(f"ED and ES within one frame: {right} of {len(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
