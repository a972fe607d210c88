"""Images of which every voxel is known."""

import itertools
import json

import nibabel as nib
import numpy as np

SHAPE, SPACING = (14, 11, 5), (1.5, 1.25, 8.0)
DARK, BRIGHT = 100, 900


def marked():
    """An image without any symmetry: noise, and in each slice a bright hook at another place."""
    image = np.random.default_rng(1).integers(DARK, 2 * DARK, SHAPE).astype(np.int16)
    for z in range(SHAPE[2]):
        image[2 + z, 3:8, z] = image[2 + z : 6 + z, 3, z] = BRIGHT
    return image


def affine():
    """Short-axis slices as a scanner stores them: oblique to the body."""
    x, y = np.array([-0.7, -0.6, -0.39]), np.array([0.1, -0.64, -0.76])
    x, y = x / np.linalg.norm(x), y - (y @ x) * x / (x @ x)
    matrix = np.eye(4)
    columns = [x, y / np.linalg.norm(y), np.cross(x, y) / np.linalg.norm(np.cross(x, y))]
    matrix[:3, :3] = np.stack(columns, axis=1) * SPACING
    matrix[:3, 3] = (20.0, -30.0, 40.0)
    return matrix


def stored(image, matrix, axes, flips):
    """The same image with its axes in another order and direction: each voxel stays where it is in the body."""
    index = np.zeros((4, 4))
    index[3, 3] = 1
    for new, (old, flip) in enumerate(zip(axes, flips, strict=True)):
        index[old, new] = -1 if flip else 1
        index[old, 3] = image.shape[old] - 1 if flip else 0
    moved = image.transpose(axes)
    return nib.Nifti1Image(
        np.ascontiguousarray(moved[tuple(slice(None, None, -1 if f else 1) for f in flips)]), matrix @ index
    )


ORDERS = [(a, f) for a in itertools.permutations(range(3)) for f in itertools.product((False, True), repeat=3)]


def write_patient(folder, name, frames, axes=(0, 1, 2), flips=(False, False, False)):
    """A patient in the layout of ACDC with these images as frames 1, 2, ...; the first is ED, the second ES."""
    (folder / name).mkdir(parents=True)
    for number, image in enumerate(frames, start=1):
        nib.save(stored(image, affine(), axes, flips), folder / name / f"{name}_frame{number:02d}.nii.gz")
    (folder / name / "Info.cfg").write_text("ED: 1\nES: 2\nGroup: NOR\n")


def read(message):
    """What the page reads: the header, and pictures [slice][row][column]."""
    line, _, body = message.partition(b"\n")
    header = json.loads(line)
    size = header["width"] * header["height"] * header["slices"]
    stacks = [np.frombuffer(body, np.uint8, size, size * n) for n in range(len(body) // size)]
    return header, [one.reshape(header["slices"], header["height"], header["width"]) for one in stacks]
