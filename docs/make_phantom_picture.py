"""Draws slices of phantom patients with their labels, and real patients next to them if a folder is given.

    python docs/make_phantom_picture.py docs/images/phantom.png
    python docs/make_phantom_picture.py OUT.png --real FOLDER

Do not commit a picture that shows real patients.
"""

import argparse
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from PIL import Image

from fclseg.anatomy.families.acdc import ANATOMY
from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume
from fclseg.data.slices import SliceStore, open_store
from fclseg.phantom.dataset import write_phantom

COLOURS = {structure.name: structure.colour for structure in ANATOMY.structures}
LEVELS = {"base": 0.15, "middle": 0.5, "apex": 0.85}
"""Positions of the slices of a picture in the stack."""
SIZE, SPACING = 128, 1.5


def columns(folder: Path, patients: int, cache: Path) -> list[list[tuple[str, np.ndarray, np.ndarray]]]:
    """(title, image, labels) of three slices at end-diastole and the middle one at end-systole, for some patients."""
    volumes = [volume for volume in read_folder(folder, "acdc") if volume.label is not None]
    names = sorted({volume.patient for volume in volumes})
    chosen = [names[i] for i in np.linspace(0, len(names) - 1, patients).round().astype(int)]
    wanted: list[Volume] = [volume for volume in volumes if volume.patient in chosen]
    store = open_store(wanted, image_size=SIZE, spacing=SPACING, cache=cache, progress=False)
    return [patient_slices(store, name) for name in chosen]


def patient_slices(store: SliceStore, patient: str) -> list[tuple[str, np.ndarray, np.ndarray]]:
    phases = {volume.phase: volume for volume in store.volumes if volume.patient == patient}
    places = [("ED", level) for level in LEVELS] + [("ES", "middle")]
    found = []
    for phase, level in places:
        volume = phases[phase]
        row = volume.start + int(LEVELS[level] * (volume.stop - volume.start))
        found.append(
            (f"{patient} {phase} {level}", np.asarray(store.images[row], float), np.asarray(store.labels[row]))
        )
    return found


def draw(groups: dict[str, list], out: Path) -> None:
    """Each patient has two columns: the image alone, and the image with its labels."""
    patients = [(kind, patient) for kind, group in groups.items() for patient in group]
    rows = len(patients[0][1])
    figure, axes = plt.subplots(rows, 2 * len(patients), figsize=(2.6 * len(patients), 1.45 * rows), squeeze=False)
    for column, (kind, patient) in enumerate(patients):
        for row, (title, image, labels) in enumerate(patient):
            for axis in axes[row, 2 * column : 2 * column + 2]:
                axis.imshow(image.T, cmap="gray", vmin=0, vmax=1)
                axis.axis("off")
            shown = np.ma.masked_equal(labels.T, 0)
            axis.imshow(shown, cmap=ListedColormap(list(COLOURS.values())), vmin=1, vmax=3, alpha=0.45)
            axes[row, 2 * column].set_title(f"{kind}: {title}", fontsize=6, loc="left", pad=2)
    figure.subplots_adjust(left=0, right=1, bottom=0, top=0.96, wspace=0.02, hspace=0.1)
    figure.set_dpi(90)  # with a palette, the picture is small enough for the repository
    figure.canvas.draw()
    pixels = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    pixels.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(out, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--real", type=Path, help="a folder in ACDC layout to draw next to the phantom")
    parser.add_argument("--patients", type=int, default=4, help="patients of each kind (default 4)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    count = arguments.patients
    with tempfile.TemporaryDirectory() as folder:
        data, cache = Path(folder) / "phantom", Path(folder) / "cache"
        write_phantom(data, patients=count, seed=arguments.seed, sites=count, frames=3)
        groups = {"phantom": columns(data, count, cache)}
        if arguments.real:
            groups["real"] = columns(arguments.real, count, cache)
    draw(groups, arguments.out)


if __name__ == "__main__":
    main()
