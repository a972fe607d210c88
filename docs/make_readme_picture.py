"""Draws the picture of the README: a phantom's cine, segmented by the shipped weights without any training or label.

    python docs/make_readme_picture.py docs/images/segment.png [--seed 5]

The phantom is of the family that the weights were not trained on. Run it again when the weights change.
"""

import argparse
import re
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import nibabel as nib
import numpy as np

from fclseg.anatomy.families.acdc import ANATOMY
from fclseg.api import segment, write_phantom

PATIENT, FRAMES = "patient001", 12
LEVELS = {"base": 0.25, "middle": 0.5, "apex": 0.75}
"""Positions of the slices in the stack."""
VALUES = {structure.name: structure.value for structure in ANATOMY.structures}
COLOURS = {structure.name: structure.colour for structure in ANATOMY.structures}
TRUTH = {"colors": ["white"], "linewidths": 0.9, "linestyles": "dashed"}


def voxels(path: Path) -> np.ndarray:
    return np.asarray(nib.load(path).dataobj)


def segmented(folder: Path, seed: int) -> tuple[np.ndarray, np.ndarray, dict[int, np.ndarray], float]:
    """Images and labels over the cycle (x, y, slice, frame), true labels of ED and ES by frame, and ml per voxel."""
    write_phantom(folder / "data", patients=1, seed=seed, frames=FRAMES, family="unseen")
    (cine,) = (folder / "data" / PATIENT).glob("*_4d.nii.gz")
    segment(cine, folder / "out")
    (found,) = (folder / "out").glob("*_seg.nii.gz")
    truth = {int(re.search(r"frame(\d+)", path.name)[1]) - 1: voxels(path) for path in cine.parent.glob("*_gt.nii.gz")}
    return voxels(cine), voxels(found), truth, float(np.prod(nib.load(cine).header.get_zooms()[:3]) / 1000)


def crop(labels: np.ndarray, margin: int = 14) -> tuple[slice, slice]:
    """The part of the image around the heart."""
    places = np.argwhere(labels.any(axis=(2, 3)))
    low, high = places.min(axis=0) - margin, places.max(axis=0) + margin
    return slice(max(0, low[0]), high[0]), slice(max(0, low[1]), high[1])


def cavity(labels: np.ndarray, ml: float) -> np.ndarray:
    """LV volumes in ml, of one frame or of each."""
    return (labels == VALUES["LV"]).sum(axis=(0, 1, 2)) * ml


def outline(axis: plt.Axes, labels: np.ndarray, name: str, **style: object) -> None:
    if (inside := (labels == VALUES[name]).T).any():
        axis.contour(inside, levels=[0.5], **style)


def draw(images: np.ndarray, labels: np.ndarray, truth: dict[int, np.ndarray], ml: float, out: Path) -> None:
    box, true = crop(labels), {frame: float(cavity(one, ml)) for frame, one in truth.items()}
    phases = {"end-diastole": max(true, key=true.__getitem__), "end-systole": min(true, key=true.__getitem__)}
    figure, axes = plt.subplots(2, 4, figsize=(11, 5.2), width_ratios=[1, 1, 1, 1.2], layout="constrained")
    for row, (phase, frame) in enumerate(phases.items()):
        for column, (level, share) in enumerate(LEVELS.items()):
            place, axis = int(share * images.shape[2]), axes[row, column]
            axis.imshow(images[*box, place, frame].T, cmap="gray")
            for name, colour in COLOURS.items():
                outline(axis, labels[*box, place, frame], name, colors=[colour], linewidths=1.8)
                outline(axis, truth[frame][*box, place], name, **TRUTH)
            axis.set(title=f"{level}, {phase}", xticks=[], yticks=[])
    grid = axes[0, 3].get_gridspec()
    for axis in axes[:, 3]:
        axis.remove()
    curve, volumes = figure.add_subplot(grid[:, 3]), cavity(labels, ml)
    percent = 100 / len(volumes)
    curve.plot(percent * np.arange(len(volumes)), volumes, "o-", color=COLOURS["LV"], label="network")
    curve.plot(
        [percent * frame for frame in true], [*true.values()], "kx", markersize=9, label="truth (dashed on the images)"
    )
    fractions = (1 - min(one) / max(one) for one in (volumes, [*true.values()]))
    curve.set(xlabel="% of the cardiac cycle", ylabel="LV volume, ml")
    curve.set_title("ejection fraction {:.0%} (true: {:.0%})".format(*fractions))
    curve.set_ylim(bottom=0)
    curve.legend(loc="lower right", frameon=False)
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        draw(*segmented(Path(folder), arguments.seed), arguments.out)


if __name__ == "__main__":
    main()
