"""The same heart, stored, padded, cropped and moved: does inference give the same labels?

    python benchmarks/same_heart.py ACDC --model my_model/model.safetensors --patients patient006,patient007

For the first patient, eleven orders of the axes (label maps must be identical in the world). For all patients, Dice of
the ED volumes in four usual orders, and how far labels agree (mean Dice of the structures) after changes that leave the
heart as it is.
"""

import argparse
import sys
import tempfile
from itertools import product
from pathlib import Path

import nibabel as nib
import numpy as np

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume, read_images
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import load_model
from fclseg.resources import shipped_model

CODES = ("LPS", "LAS", "RPS", "RAS")
SHIFT_MM, PAD = 40.0, 256
MARGINS_MM = (40.0, 20.0)


def segment(segmenter: Segmenter, image: nib.Nifti1Image) -> nib.Nifti1Image:
    """Through a file, as a user would."""
    with tempfile.TemporaryDirectory() as folder:
        nib.save(image, Path(folder) / "image.nii")
        (volume,) = read_folder(folder)
        ((_, voxels),) = read_images([volume])
        labels = volume.storage.outside(segmenter(voxels, volume).labels)
    return nib.Nifti1Image(np.ascontiguousarray(labels), image.affine)


def agreement(one: np.ndarray, other: np.ndarray, classes: int) -> float:
    sizes = [((one == k).sum() + (other == k).sum(), ((one == k) & (other == k)).sum()) for k in range(1, classes)]
    return float(np.mean([2 * both / size if size else 1.0 for size, both in sizes]))


def reordered(image: nib.Nifti1Image, code: str) -> nib.Nifti1Image:
    wanted = nib.orientations.axcodes2ornt(code)
    return image.as_reoriented(nib.orientations.ornt_transform(nib.io_orientation(image.affine), wanted))


def orders(segmenter: Segmenter, image: nib.Nifti1Image) -> None:
    known = [((0, 1, 2), flips) for flips in product((1, -1), repeat=3)]
    known += [((1, 0, 2), (1, 1, 1)), ((2, 0, 1), (1, -1, 1)), ((2, 1, 0), (-1, 1, 1))]
    found = []
    for axes, flips in known:
        stored = image.as_reoriented(np.stack([axes, flips], axis=1))
        labels = nib.as_closest_canonical(segment(segmenter, stored))
        found.append(np.asarray(labels.dataobj))
        same = "identical" if np.array_equal(found[0], found[-1]) else "DIFFERENT"
        print(f"{''.join(nib.aff2axcodes(stored.affine))} {stored.shape}: {same}", flush=True)


def moved(segmenter: Segmenter, volume: Volume, voxels: np.ndarray) -> dict[str, float]:
    """Agreement with the labels of the image as it is, by change."""
    classes, labels = volume.anatomy.classes, segmenter(voxels, volume).labels
    padded = segmenter(np.pad(voxels, [(PAD, PAD), (PAD, PAD), (0, 0)]), volume).labels
    found = {f"padded by {PAD}": agreement(padded[PAD:-PAD, PAD:-PAD], labels, classes)}
    step = round(SHIFT_MM / volume.spacing[0])
    shifted = np.roll(segmenter(np.roll(voxels, step, axis=0), volume).labels, -step, axis=0)
    found[f"shifted by {SHIFT_MM:.0f} mm"] = agreement(shifted, labels, classes)
    place = np.argwhere(volume.read_label().any(axis=2))
    for margin in MARGINS_MM:
        reach = [margin / volume.spacing[axis] for axis in (0, 1)]
        box = tuple(
            slice(max(0, int(place[:, axis].min() - reach[axis])), int(place[:, axis].max() + reach[axis]) + 1)
            for axis in (0, 1)
        )
        found[f"cropped to {margin:.0f} mm around it"] = agreement(
            segmenter(voxels[box], volume).labels, labels[box], classes
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder in the ACDC layout")
    parser.add_argument("--model", type=Path, help="default: the shipped one")
    parser.add_argument("--patients", help="names, separated by commas (default: all)")
    arguments = parser.parse_args()
    segmenter = Segmenter(load_model(arguments.model or shipped_model("acdc_unet")))
    volumes = [volume for volume in read_folder(arguments.data) if volume.label is not None and volume.phase == "ED"]
    if arguments.patients:
        volumes = [volume for volume in volumes if volume.patient in arguments.patients.split(",")]
    orders(segmenter, plain(volumes[0].image))
    for code in CODES:
        scores = []
        for volume in volumes:
            truth = np.asarray(reordered(nib.load(volume.label), code).dataobj)
            labels = np.asarray(segment(segmenter, reordered(plain(volume.image), code)).dataobj)
            scores.append(agreement(labels, truth, volume.anatomy.classes))
        print(f"stored as {code}: mean Dice {np.mean(scores):.4f}, {len(scores)} volumes", flush=True)
    table = [moved(segmenter, volume, voxels) for volume, voxels in read_images(volumes)]
    for name in table[0]:
        values = [row[name] for row in table]
        print(f"{name}: agreement {np.mean(values):.3f}, lowest {min(values):.3f}, {len(values)} volumes")
    return 0


def plain(path: Path) -> nib.Nifti1Image:
    image = nib.load(path)
    return nib.Nifti1Image(np.asarray(image.dataobj), image.affine)


if __name__ == "__main__":
    sys.exit(main())
