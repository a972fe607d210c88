"""Runs damaged, contradictory and strange images through ``data check`` and inference, and counts outcomes by class.

    python benchmarks/mutated_inputs.py --count 1000

Every mutation states what must happen: the image is refused in one sentence, or the change is harmless and the labels
stay correct. A traceback, a hang, a wrong acceptance or a half-written file is a failure and sets the exit code. Images
whose content is destroyed may have any labels. In every other pass over the mutations, the organ is located first, as
for hearts.
"""

import contextlib
import gzip
import io
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from outcomes import REFUSED, Counts, outcome_of, report
from torch import nn

from fclseg.anatomy.families.plain import from_labels
from fclseg.data.check import check_folder
from fclseg.inference.cases import find_cases
from fclseg.inference.patients import Inference
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import TrainedModel

SHAPE, SIZES = (26, 24, 4), (1.5, 1.5, 8.0)
RIGHT, EITHER, ANY = "right", "either", "any labels"
ALLOWED = {EITHER: {REFUSED, RIGHT}, ANY: {REFUSED, ANY}}
Random = np.random.Generator


class Threshold(nn.Module):
    """A network whose correct answer is known: bright pixels are structure 1."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([0.5 - images, images - 0.5], dim=1) * 40


@dataclass(frozen=True)
class Mutation:
    name: str
    change: Callable[[Path, Random], None]
    expected: str


def disc() -> np.ndarray:
    x, y = np.meshgrid(np.arange(SHAPE[0]), np.arange(SHAPE[1]), indexing="ij")
    return np.repeat((np.hypot(x - 12, y - 11) < 6)[..., None], SHAPE[2], axis=2)


def write(path: Path, voxels: np.ndarray | None = None, affine: np.ndarray | None = None) -> nib.Nifti1Image:
    noise = np.random.default_rng(0).integers(0, 20, SHAPE)
    voxels = (disc() * 800 + 100 + noise).astype(np.int16) if voxels is None else voxels
    image = nib.Nifti1Image(voxels, np.diag([-SIZES[0], -SIZES[1], SIZES[2], 1.0]) if affine is None else affine)
    nib.save(image, path)
    return image


def header_bytes(position: Callable[[Random], int], value: Callable[[Random], bytes]) -> Callable[[Path, Random], None]:
    def change(path: Path, random: Random) -> None:
        content = bytearray(gzip.decompress(path.read_bytes()))
        start, new = position(random), value(random)
        content[start : start + len(new)] = new
        path.write_bytes(gzip.compress(bytes(content)))

    return change


def voxel(value: float) -> Callable[[Path, Random], None]:
    def change(path: Path, random: Random) -> None:
        voxels = np.asarray(nib.load(path).dataobj).astype(np.float64)
        middle = [(n // 4, n - n // 4) for n in SHAPE[:2]]  # NaN outside of it counts as padding
        voxels[tuple(random.integers(*part) for part in (*middle, (0, SHAPE[2])))] = value
        write(path, voxels)

    return change


def cut(path: Path, random: Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: random.integers(0, len(content) - 1)])


def flip_compressed_bytes(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    for at in random.integers(10, len(content), 4):
        content[at] ^= int(random.integers(1, 256))
    path.write_bytes(bytes(content))


def other_order(path: Path, random: Random) -> None:
    axes, flips = random.permutation(3), random.choice([-1, 1], 3)
    image = nib.load(path).as_reoriented(np.stack([axes, flips], axis=1))
    nib.save(nib.Nifti1Image(np.asarray(image.dataobj), image.affine), path)


def rotated(path: Path, random: Random) -> None:
    turn = nib.eulerangles.euler2mat(*random.uniform(-0.6, 0.6, 3))
    affine = np.eye(4)
    affine[:3, :3] = turn @ np.diag([-SIZES[0], -SIZES[1], SIZES[2]])
    write(path, affine=affine)


def padded(path: Path, random: Random) -> None:
    voxels = np.asarray(nib.load(path).dataobj)
    write(path, np.pad(voxels, [(0, int(random.integers(8, 60))), (0, int(random.integers(8, 60))), (0, 0)]))


def constant(path: Path, random: Random) -> None:
    write(path, np.full(SHAPE, random.integers(-5, 5), np.int16))


def pipe(path: Path, random: Random) -> None:
    path.unlink()
    os.mkfifo(path)


def text(path: Path, random: Random) -> None:
    path.write_bytes(bytes(random.integers(0, 256, random.integers(0, 2000), dtype=np.uint8)))


def dimensions(path: Path, random: Random) -> None:
    write(path, np.zeros((9, 9, 1, 2, 2) if random.random() < 0.5 else (9, 9), np.int16))


def moved_label(path: Path, random: Random) -> None:
    affine = np.diag([-SIZES[0], -SIZES[1], SIZES[2], 1.0])
    kind = random.integers(0, 4)
    if kind == 3:
        affine[:3, 3] = random.uniform(2, 30, 3)
    else:
        affine[kind, kind] *= -1
    write(path.with_name("a_gt.nii.gz"), disc().astype(np.uint8), affine)


def wrong_label(path: Path, random: Random) -> None:
    write(path.with_name("a_gt.nii.gz"), disc().astype(np.int16) * int(random.choice([-1, 2, 7, 300])))


def shape_of_label(path: Path, random: Random) -> None:
    write(path.with_name("a_gt.nii.gz"), disc()[int(random.integers(1, 5)) :].astype(np.uint8))


def destroyed(path: Path, random: Random) -> None:
    """A black part, noise alone, a bright edge or corner, a single slice, or hardly any pixels."""
    voxels = np.asarray(nib.load(path).dataobj).astype(np.int16)
    kind = random.integers(0, 6)
    if kind == 0:
        voxels[:, int(random.integers(0, SHAPE[1])) :] = voxels.min()
    elif kind == 1:
        voxels = random.integers(0, 1000, SHAPE).astype(np.int16)
    elif kind == 2:
        voxels[int(random.integers(SHAPE[0] - 3, SHAPE[0])) :] = 3000
    elif kind == 3:
        voxels[:2, :2] = 9000
    elif kind == 4:
        voxels = voxels[..., :1]
    else:
        voxels = voxels[: int(random.integers(1, 9)), : int(random.integers(1, 9))]
    write(path, voxels)


def float32(values: list[float]) -> Callable[[Random], bytes]:
    return lambda random: np.float32(random.choice(values)).tobytes()


PIXDIM = 76
MUTATIONS = [
    Mutation("untouched", lambda path, random: None, RIGHT),
    Mutation("other order of axes, affine adjusted", other_order, RIGHT),
    Mutation("oblique affine", rotated, RIGHT),
    Mutation("padded", padded, RIGHT),
    Mutation("cut short", cut, REFUSED),
    Mutation("compressed bytes changed", flip_compressed_bytes, EITHER),
    Mutation("random bytes", text, REFUSED),
    Mutation("named pipe", pipe, REFUSED),
    Mutation("2D or 5D", dimensions, REFUSED),
    Mutation("constant", constant, REFUSED),
    Mutation("NaN voxel", voxel(np.nan), REFUSED),
    Mutation("infinite voxel", voxel(np.inf), REFUSED),
    Mutation("voxel of 1e39", voxel(1e39), REFUSED),
    Mutation("slope of 1e38", header_bytes(lambda r: 112, float32([1e38])), REFUSED),
    Mutation(
        "voxel size 0, negative, NaN or huge",
        header_bytes(lambda r: PIXDIM + 4 * int(r.integers(1, 4)), float32([0.0, -1.5, np.nan, np.inf, 900.0, 1e-6])),
        REFUSED,
    ),
    Mutation("unit metre", header_bytes(lambda r: 123, lambda r: bytes([1])), REFUSED),
    Mutation("unknown unit", header_bytes(lambda r: 123, lambda r: bytes([5])), REFUSED),
    Mutation("any byte of the header", header_bytes(lambda r: int(r.integers(0, 348)), lambda r: r.bytes(1)), EITHER),
    Mutation("four bytes of the header", header_bytes(lambda r: int(r.integers(0, 344)), lambda r: r.bytes(4)), EITHER),
    Mutation("content destroyed", destroyed, ANY),
    Mutation("label map elsewhere", moved_label, REFUSED),
    Mutation("label of no structure", wrong_label, REFUSED),
    Mutation("label of another shape", shape_of_label, REFUSED),
]


def outcome(mutation: Mutation, folder: Path, random: Random, segmenter: Segmenter) -> str:
    """The outcome for one mutated image: refused, right, wrong, hang, traceback or half-written."""
    data, out = folder / "data", folder / "out"
    data.mkdir()
    path = data / "a.nii.gz"
    write(path)
    (data / "labels.json").write_text('{"structures": {"1": "LV"}}')
    mutation.change(path, random)

    def attempt() -> str:
        problems = check_folder(data).problems
        if problems:
            return REFUSED if all("\n" not in problem for problem in problems) else "more than a sentence"
        Inference(segmenter, find_cases(str(data)), out).run()
        if mutation.expected == ANY:
            return ANY
        return RIGHT if right(nib.load(path), nib.load(out / "a_seg.nii.gz"), out) else "wrong"

    return outcome_of(attempt)


def right(image: nib.Nifti1Image, labels: nib.Nifti1Image, out: Path) -> bool:
    """Whether the bright half of the image is labelled, at its position in the world, with its true size.

    An image whose changed header still describes the disc (other axis order, rotated, padded, other grey values) has
    the same volume as the original.
    """
    values = np.asarray(image.dataobj, dtype=np.float64)
    bright = values > (values.min() + values.max()) / 2
    marked = np.asarray(labels.dataobj) > 0
    known_ml = disc().sum() * np.prod(SIZES) / 1000
    found_ml = json.loads((out / "measurements.json").read_text())["volumes"][0]["LV_ml"]
    same_place = np.allclose(image.affine, labels.affine, atol=1e-3)
    return np.mean(marked != bright) < 0.04 and abs(found_ml / known_ml - 1) < 0.1 and same_place


def run(count: int, seed: int = 0) -> tuple[Counts, list[str]]:
    """Outcomes by class, and all failures."""
    organ = from_labels({"structures": {"1": "LV"}}, "-")
    segmenters = [
        Segmenter(TrainedModel(Threshold(), replace(organ, compact=compact), 32, 1.5, "demo"))  # type: ignore[arg-type]
        for compact in (False, True)
    ]
    counts: Counts = Counter()
    faults = []
    for number in range(count):
        mutation = MUTATIONS[number % len(MUTATIONS)]
        segmenter = segmenters[number // len(MUTATIONS) % 2]
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            with contextlib.redirect_stderr(io.StringIO()):
                found = outcome(mutation, Path(folder), np.random.default_rng([seed, number]), segmenter)
            left = [path.name for path in Path(folder).rglob(".*")]
        counts[mutation.name, found] += 1
        allowed = ALLOWED.get(mutation.expected, {mutation.expected})
        if found not in allowed or left:
            faults.append(f"number {number}, {mutation.name}: {found} {left}")
    return counts, faults


if __name__ == "__main__":
    sys.exit(report(__doc__, "mutated inputs", run))
