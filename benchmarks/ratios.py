"""Measures the speed of each part against the plain way of doing the same, on the same machine at the same time.

    make bench                                              # writes docs/results/performance.csv
    python benchmarks/ratios.py [--preset small] [--repeats 5] [--write FILE]

Ours and the reference alternate, and the minimum processor time of each counts, so a busy machine hardly changes the
ratios. Uses one torch thread.
"""

import argparse
import csv
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from monai.data import CacheDataset, DataLoader
from monai.transforms import (
    Compose,
    EnsureTyped,
    RandAdjustContrastd,
    RandAffined,
    RandGaussianNoised,
    RandGaussianSmoothd,
    RandScaleIntensityd,
)

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import read_images
from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import SliceStore, open_store
from fclseg.federation.averaging import WeightedMean
from fclseg.federation.states import to_arrays
from fclseg.inference.measure import measure
from fclseg.inference.overlay import write_overlay
from fclseg.inference.segment import Segmentation, Segmenter
from fclseg.methods.base import Method
from fclseg.methods.byol import byol_loss
from fclseg.methods.registry import build_method
from fclseg.methods.training import _step, make_optimizer
from fclseg.networks.model_file import load_model
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import Preset, get_preset
from fclseg.randomness import generator
from fclseg.resources import shipped_model

Work = Callable[[], object]
PATIENTS, SITES = 4, 4


@dataclass(frozen=True)
class Comparison:
    """What is timed, its reference, and the processor seconds of both."""

    name: str
    reference: str
    ours: float
    plain: float

    @property
    def row(self) -> tuple[str, ...]:
        times = f"{1000 * self.ours:.1f}", f"{1000 * self.plain:.1f}", f"{self.ours / self.plain:.2f}"
        return self.name, self.reference, *times


def compare(name: str, reference: str, ours: Work, plain: Work, repeats: int) -> Comparison:
    best = [float("inf"), float("inf")]
    for _ in range(repeats + 1):  # the first run of each is a warm-up and does not count
        for index, work in enumerate((ours, plain)):
            started = time.process_time()
            work()
            best[index] = min(best[index], time.process_time() - started)
    return Comparison(name, reference, *best)


def phantom_store(preset: Preset, folder: Path) -> SliceStore:
    write_phantom(folder / "data", patients=PATIENTS)
    images = preset.images
    spacing = images.spacing(ANATOMIES["acdc"])
    volumes = read_folder(folder / "data")
    return open_store(volumes, image_size=images.size, spacing=spacing, cache=folder / "cache", progress=False)


def training_step(preset: Preset, sampler: SliceSampler, repeats: int) -> Comparison:
    """One step of FCLOpt against the same networks, loss and optimiser on precomputed views."""
    method, bare = (build_method("fclopt", preset, 0) for _ in range(2))
    optimizers = [make_optimizer(one) for one in (method, bare)]
    draws = generator(0, "bench")
    size = preset.images.view_size
    first, second = (torch.rand(preset.pretraining.batch_size, 1, size, size) for _ in range(2))

    def ours() -> None:
        _step(method, optimizers[0], sampler.draw(draws), draws)

    name = f"training step of FCLOpt with its views, {preset.name}"
    return compare(
        name, "bare networks on ready views", ours, lambda: byol_step(bare, optimizers[1], first, second), repeats
    )


def monai_view(preset: Preset) -> Callable[[torch.Tensor], torch.Tensor]:
    """A view of a batch with MONAI's dictionary transforms, slice by slice."""
    size = (preset.images.view_size,) * 2
    transforms = Compose(
        [
            RandAffined("image", prob=1, rotate_range=0.7, scale_range=0.2, spatial_size=size, padding_mode="border"),
            RandAdjustContrastd("image", prob=1, gamma=(0.5, 2)),
            RandScaleIntensityd("image", factors=0.5, prob=1),
            RandGaussianNoised("image", prob=1, std=0.05),
            RandGaussianSmoothd("image", prob=1),
            EnsureTyped("image", track_meta=False),
        ]
    )
    return lambda images: torch.stack([transforms({"image": image})["image"] for image in images])


def views(preset: Preset, sampler: SliceSampler, repeats: int) -> Comparison:
    """Two views of each slice, as every step needs them."""
    method, draws = build_method("fclopt", preset, 0), generator(0, "bench")
    images, view = sampler.draw(draws).images, monai_view(preset)
    return compare(
        f"two views of a batch of {len(images)} slices",
        "MONAI's dictionary transforms, slice by slice",
        lambda: method.views(images, draws),
        lambda: (view(images), view(images)),
        repeats,
    )


def whole_step(preset: Preset, sampler: SliceSampler, repeats: int) -> Comparison:
    """One step of FCLOpt with its images and views, against BYOL as one writes it with MONAI."""
    method, plain_method = (build_method("fclopt", preset, 0) for _ in range(2))
    optimizers = [make_optimizer(one) for one in (method, plain_method)]
    draws, view = generator(0, "bench"), monai_view(preset)

    def plain() -> None:
        images = sampler.draw(draws).images
        byol_step(plain_method, optimizers[1], view(images), view(images))
        with torch.no_grad():
            for slow, fast in zip(plain_method.target.parameters(), plain_method.online.parameters(), strict=True):
                slow.mul_(0.99).add_(fast, alpha=0.01)

    def ours() -> None:
        _step(method, optimizers[0], sampler.draw(draws), draws)

    name = f"training step of FCLOpt with its views, {preset.name}"
    return compare(name, "MONAI's dictionary transforms and plain BYOL", ours, plain, repeats)


def byol_step(method: Method, optimizer: torch.optim.Optimizer, first: torch.Tensor, second: torch.Tensor) -> None:
    online = [method.predictor(method.online(view)) for view in (first, second)]
    with torch.no_grad():
        target = [method.target(view) for view in (first, second)]
    loss = byol_loss(online[0], target[1]) + byol_loss(online[1], target[0])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def segmenting(folder: Path, repeats: int) -> Comparison:
    """A volume with its picture, against the same steps with a plain loop over slices and a set of axes per slice."""
    model, (volume, *_) = load_model(shipped_model("acdc_unet")), read_folder(folder / "data")
    voxels = next(iter(read_images([volume])))[1]
    who = {"patient": "1", "phase": "ED", "image": "image", "frame": None}

    def draw(labels: np.ndarray, picture: Callable) -> None:
        measured = measure(Segmentation(labels), volume.spacing, model.anatomy, **who)
        picture(folder / "picture.png", voxels, labels, volume.spacing, model.anatomy, measured)

    segmenter, plain = Segmenter(model), Segmenter(model)

    def slice_by_slice(images: torch.Tensor) -> torch.Tensor:
        return torch.cat([model.network(image[None]).softmax(dim=1) for image in images])

    plain._probabilities = slice_by_slice
    return compare(
        "segmenting a volume, with its picture",
        "plain loop over slices, and a set of axes per slice",
        lambda: draw(segmenter(voxels, volume).labels, write_overlay),
        lambda: draw(plain(voxels, volume).labels, plain_picture),
        repeats,
    )


def plain_picture(path: Path, voxels, labels, spacing, anatomy, measured) -> None:
    """As one writes it with matplotlib."""
    columns = 6
    figure, axes = plt.subplots(math.ceil(labels.shape[2] / columns), columns, figsize=(13, 6), dpi=120, squeeze=False)
    for number, axis in enumerate(axes.flat):
        axis.axis("off")
        if number < labels.shape[2]:
            axis.imshow(voxels[..., number].T, cmap="gray", interpolation="bilinear")
            axis.set_title(f"{number + 1}")
            for structure in anatomy.structures:
                if (mask := labels[..., number] == structure.value).any():
                    axis.contour(mask.T.astype(float), levels=[0.5], colors=[structure.colour], linewidths=1.3)
    figure.suptitle(str(measured.ml))
    figure.savefig(path)
    plt.close(figure)


def loading(store: SliceStore, batch: int, repeats: int) -> Comparison:
    sampler = SliceSampler(store, store.select(), batch)
    slices = [{"image": np.asarray(image, np.float32)[None]} for image in store.images]
    cached = CacheDataset(slices, transform=EnsureTyped("image"), progress=False)
    loader, draws = DataLoader(cached, batch_size=batch, shuffle=True, drop_last=True), generator(0, "bench")

    def ours() -> None:
        for _ in sampler.epoch(draws):
            pass

    def plain() -> None:
        for _ in loader:
            pass

    name = f"an epoch of {len(store.images)} slices from the slice store"
    return compare(name, "MONAI's CacheDataset and DataLoader", ours, plain, repeats)


def averaging(preset: Preset, repeats: int) -> Comparison:
    states = [to_arrays(build_method("fclopt", preset, seed).online.state_dict()) for seed in range(SITES)]
    weights = [100 + 17 * number for number in range(SITES)]

    def ours() -> None:
        mean = WeightedMean("online")
        for state, weight in zip(states, weights, strict=True):
            mean.add(state, weight)
        mean.result()

    def plain() -> None:
        total = sum(weights)
        for name in states[0]:
            sum(state[name] * np.float32(weight / total) for state, weight in zip(states, weights, strict=True))

    name = f"checked, order-independent mean of {SITES} networks, {preset.name}"
    return compare(name, "plain mean in float32", ours, plain, repeats)


def table(preset: Preset, repeats: int) -> list[Comparison]:
    with tempfile.TemporaryDirectory() as folder:
        store = phantom_store(preset, Path(folder))
        sampler = SliceSampler(store, store.select(), preset.pretraining.batch_size, partners=True)
        return [
            training_step(preset, sampler, repeats),
            whole_step(preset, sampler, repeats),
            views(preset, sampler, repeats),
            loading(store, preset.pretraining.batch_size, repeats),
            averaging(preset, repeats),
            averaging(get_preset("paper"), repeats),
            segmenting(Path(folder), repeats),
        ]


COLUMNS = ("ours", "reference", "ours, ms", "reference, ms", "ratio")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="small")
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write the table as CSV")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = table(get_preset(arguments.preset), arguments.repeats)
    for one in found:
        print(*one.row, sep=" | ")
    if arguments.write:
        with arguments.write.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *(one.row for one in found)])


if __name__ == "__main__":
    main()
