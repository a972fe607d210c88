"""Corrupted images of phantom patients: is a wrong ejection fraction flagged, or printed as if nothing were wrong?

    python benchmarks/corrupted_images.py --patients 4

ED and ES of every patient are corrupted in the same way and segmented with the shipped weights. A result that is off by
more than 10 points and not flagged is a silent error.
"""

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
from cine_function import truth
from scipy import ndimage

from fclseg.errors import DataError
from fclseg.inference.cases import find_cases
from fclseg.inference.patients import Inference
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import load_model
from fclseg.phantom.dataset import write_phantom
from fclseg.resources import shipped_model

WRONG_POINTS = 10.0
Random = np.random.Generator


def half_black(voxels: np.ndarray, random: Random) -> np.ndarray:
    voxels[:, voxels.shape[1] // 2 :] = voxels.min()
    return voxels


CORRUPTIONS: dict[str, Callable[[np.ndarray, Random], np.ndarray]] = {
    "nothing": lambda voxels, random: voxels,
    "half of the image black": half_black,
    "noise alone": lambda voxels, random: random.normal(voxels.mean(), voxels.std(), voxels.shape),
    "strong noise": lambda voxels, random: voxels + random.normal(0, 1.5 * voxels.std(), voxels.shape),
    "blurred by 8 pixels": lambda voxels, random: ndimage.gaussian_filter(voxels, (8, 8, 0)),
    "grey values inverted": lambda voxels, random: voxels.max() - voxels,
    "slices in random order": lambda voxels, random: voxels[..., random.permutation(voxels.shape[2])],
    "basal and apical slices missing": lambda voxels, random: voxels[..., 3:-3],
    "in-plane axes swapped without the affine": lambda voxels, random: voxels.transpose(1, 0, 2),
    "mirrored without the affine": lambda voxels, random: voxels[::-1],
    "half of the image missing": lambda voxels, random: voxels[: voxels.shape[0] // 2],
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=3000)
    parser.add_argument("--model", type=Path, help="default: the shipped one")
    arguments = parser.parse_args()
    segmenter = Segmenter(load_model(arguments.model or shipped_model("acdc_unet")))
    silent = 0
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        folders = write_phantom(
            place / "phantom", "acdc", arguments.patients, arguments.seed, arguments.patients, frames=2
        )
        for title, change in CORRUPTIONS.items():
            counts = {"right": 0, "flagged": 0, "refused": 0, "silent": 0}
            for number, folder in enumerate(folders):
                phases, fractions = truth(folder)
                files = {}
                for phase, frame in phases.items():
                    image = nib.load(next(folder.glob(f"*_frame{frame:02d}.nii.gz")))
                    random = np.random.default_rng([arguments.seed, number])
                    voxels = change(np.asarray(image.dataobj).astype(np.float32), random)
                    files[phase] = place / f"{phase}.nii.gz"
                    nib.save(nib.Nifti1Image(np.ascontiguousarray(voxels, np.float32), image.affine), files[phase])
                out = place / f"{len(list(place.iterdir()))}"
                counts[_outcome(segmenter, files, out, fractions["LV"])] += 1
            silent += counts["silent"]
            print(f"{title:<42} " + ", ".join(f"{count} {word}" for word, count in counts.items()), flush=True)
    print(f"{silent} silent errors")
    return 0


def _outcome(segmenter: Segmenter, files: dict[str, Path], out: Path, known: float) -> str:
    cases = find_cases(ed=str(files["ED"]), es=str(files["ES"]))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            (result,) = Inference(segmenter, cases, out).run()
    except DataError:
        return "refused"
    if result.flags:
        return "flagged"
    value = result.value("LV ejection fraction")
    return "right" if value is not None and abs(value.number - known) <= WRONG_POINTS else "silent"


if __name__ == "__main__":
    sys.exit(main())
