"""Checks on cine phantoms without named phases that ED and ES are found and the ejection fraction is correct.

    python benchmarks/cine_function.py --patients 10

    fclseg data phantom --out labelled --patients 16 --sites 4 --seed 4000
    fclseg finetune labelled --out mine
    python benchmarks/cine_function.py --patients 24 --first 17 --sites 4 --seed 4000 --model mine/model.safetensors

Each phantom is segmented as a single 4D file, without the Info.cfg that names its phases. The second way measures a
model that was fine-tuned on other patients of the same four scanners.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

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
    return phases, {name: 100 * (first - last) / first for name, (first, last) in amounts.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="number of the first patient to segment")
    parser.add_argument("--sites", type=int, default=1, help="number of scanners")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--model", type=Path, help="default: the shipped one")
    arguments = parser.parse_args()
    segmenter = Segmenter(load_model(arguments.model or shipped_model("acdc_unet")))
    errors: dict[str, list[float]] = {name: [] for name in VALUES}
    right = 0
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        folders = write_phantom(place / "phantom", "acdc", arguments.patients, arguments.seed, arguments.sites)
        for folder in folders[arguments.first - 1 :]:
            phases, fractions = truth(folder)
            scan = place / f"{folder.name}.nii.gz"
            shutil.copy2(next(folder.glob("*_4d.nii.gz")), scan)
            (result,) = Inference(segmenter, find_cases(str(scan)), place / f"out_{folder.name}").run()
            found = {phase: one.frame for phase, one in result.phases.items()}
            near = all(abs((found.get(phase) or 99) - frame) <= 1 for phase, frame in phases.items())
            right += near
            text = ""
            for structure, known in fractions.items():
                value = result.value(f"{structure} ejection fraction")
                if value is not None:
                    errors[structure].append(value.number - known)
                    text += f"  {structure} EF {value.number:.1f} (true {known:.1f})"
            flags = f"  CHECK: {'; '.join(result.flags)}" if result.flags else ""
            print(f"{folder.name}: found {found}, true {phases}{text}{flags}", flush=True)
    for structure, values in errors.items():
        print(
            f"{structure} ejection fraction: mean error {np.mean(values):+.1f}, "
            f"mean absolute {np.abs(values).mean():.1f}, largest {np.abs(values).max():.1f} points "
            f"in {len(values)} patients"
        )
        close = sum(abs(value) <= 5 for value in values)
        print(f"{structure} ejection fraction within 5 points: {close} of {len(values)}")
    print(f"ED and ES within one frame: {right} of {arguments.patients - arguments.first + 1}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
