"""Draws the picture of the README: a phantom's cine, segmented by the shipped weights without any training or label.

    python docs/make_readme_picture.py docs/images/segment.png

The phantom is of the family that the weights were not trained on. Run it again when the weights change.
"""

import argparse
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import nibabel as nib
import numpy as np

from fclseg.anatomy.families.acdc import ANATOMY
from fclseg.api import segment, write_phantom

SEED, PATIENT, FRAMES = 5, "patient001", 12
LEVELS = {"base": 0.25, "middle": 0.5, "apex": 0.75}
"""Positions of the slices in the stack."""
VALUES = {structure.name: structure.value for structure in ANATOMY.structures}
COLOURS = {structure.name: structure.colour for structure in ANATOMY.structures}


def segmented(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Images and labels over the cycle (x, y, slice, frame), LV volumes in ml, and the true ejection fraction."""
    write_phantom(folder / "data", patients=1, seed=SEED, frames=FRAMES, family="unseen")
    (cine,) = (folder / "data" / PATIENT).glob("*_4d.nii.gz")
    segment(cine, folder / "out")
    (found,) = (folder / "out").glob("*_seg.nii.gz")
    image, labels = nib.load(cine), np.asarray(nib.load(found).dataobj)
    millilitres = np.prod(image.header.get_zooms()[:3]) / 1000
    volumes = (labels == VALUES["LV"]).sum(axis=(0, 1, 2)) * millilitres
    truth = [np.sum(np.asarray(nib.load(path).dataobj) == VALUES["LV"]) for path in cine.parent.glob("*_gt.nii.gz")]
    return np.asarray(image.dataobj), labels, volumes, 1 - min(truth) / max(truth)


def crop(labels: np.ndarray, margin: int = 22) -> tuple[slice, slice]:
    """The part of the image around the heart."""
    places = np.argwhere(labels.any(axis=(2, 3)))
    low, high = places.min(axis=0) - margin, places.max(axis=0) + margin
    return slice(max(0, low[0]), high[0]), slice(max(0, low[1]), high[1])


def draw(images: np.ndarray, labels: np.ndarray, volumes: np.ndarray, true: float, out: Path) -> None:
    box, phases = crop(labels), {"end-diastole": int(volumes.argmax()), "end-systole": int(volumes.argmin())}
    figure, axes = plt.subplots(2, 4, figsize=(11, 5.6), width_ratios=[1, 1, 1, 1.25])
    for row, (phase, frame) in enumerate(phases.items()):
        for column, (level, share) in enumerate(LEVELS.items()):
            place, axis = int(share * images.shape[2]), axes[row, column]
            axis.imshow(images[*box, place, frame].T, cmap="gray")
            for name, value in VALUES.items():
                inside = (labels[*box, place, frame] == value).T
                if inside.any():
                    axis.contour(inside, levels=[0.5], colors=[COLOURS[name]], linewidths=1.6)
            axis.set(title=f"{level}, {phase}", xticks=[], yticks=[])
    grid = axes[0, 3].get_gridspec()
    for axis in axes[:, 3]:
        axis.remove()
    curve = figure.add_subplot(grid[:, 3])
    curve.plot(100 * np.arange(len(volumes)) / len(volumes), volumes, "o-", color=COLOURS["LV"])
    title = f"ejection fraction {1 - volumes.min() / volumes.max():.0%} (true: {true:.0%})"
    curve.set(xlabel="% of the cardiac cycle", ylabel="LV volume, ml", title=title)
    curve.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        draw(*segmented(Path(folder)), out)


if __name__ == "__main__":
    main()
