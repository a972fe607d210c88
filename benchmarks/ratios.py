"""Measures the speed of each part against the plain way of doing the same, on the same machine at the same time.

    make bench                                              # writes docs/performance.md
    python benchmarks/ratios.py [--preset small] [--repeats 5] [--write docs/performance.md]

Ours and the reference alternate, and the minimum processor time of each counts, so a busy machine hardly changes the
ratios. Uses one torch thread.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.phantom import write_phantom
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import SliceStore, open_store
from fclseg.federation.averaging import WeightedMean
from fclseg.federation.states import to_arrays
from fclseg.methods.byol import byol_loss
from fclseg.methods.registry import build_method
from fclseg.methods.training import _step, make_optimizer
from fclseg.presets import Preset, get_preset
from fclseg.randomness import generator

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
    def row(self) -> str:
        times = f"{1000 * self.ours:.1f} | {1000 * self.plain:.1f} | {self.ours / self.plain:.2f}"
        return f"| {self.name} | {self.reference} | {times} |"


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

    def plain() -> None:
        online = [bare.predictor(bare.online(view)) for view in (first, second)]
        with torch.no_grad():
            target = [bare.target(view) for view in (first, second)]
        loss = byol_loss(online[0], target[1]) + byol_loss(online[1], target[0])
        optimizers[1].zero_grad(set_to_none=True)
        loss.backward()
        optimizers[1].step()

    def ours() -> None:
        _step(method, optimizers[0], sampler.draw(draws), draws)

    name = f"training step of FCLOpt, {preset.name}"
    return compare(name, "bare networks on ready views", ours, plain, repeats)


def views(preset: Preset, sampler: SliceSampler, repeats: int) -> Comparison:
    method, draws = build_method("fclopt", preset, 0), generator(0, "bench")
    images = sampler.draw(draws).images
    size = (preset.images.view_size,) * 2
    transforms = Compose(
        [
            RandAffined("image", prob=1, rotate_range=0.7, scale_range=0.2, spatial_size=size, padding_mode="border"),
            RandAdjustContrastd("image", prob=1, gamma=(0.5, 2)),
            RandScaleIntensityd("image", factors=0.5, prob=1),
            RandGaussianNoised("image", prob=1, std=0.05),
            RandGaussianSmoothd("image", prob=1),
            EnsureTyped("image"),
        ]
    )
    name = f"one view of a batch of {len(images)} slices"
    return compare(
        name,
        "MONAI's dictionary transforms, slice by slice",
        lambda: method.views(images, draws),
        lambda: torch.stack([transforms({"image": image})["image"] for image in images]),
        repeats,
    )


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
            views(preset, sampler, repeats),
            loading(store, preset.pretraining.batch_size, repeats),
            averaging(preset, repeats),
            averaging(get_preset("paper"), repeats),
        ]


PAGE = """# Performance

This page is written by `make bench`. It compares each part with the plain way of doing the same, on the same machine
and in alternation. Times are processor milliseconds with one thread, the minimum of {repeats} repeats. A ratio below
1.00 means that ours is faster. During the measurement the load was {load:.0f} processes for {cores} cores, so single
milliseconds are less reliable than ratios.

| ours | reference | ours, ms | reference, ms | ratio |
|---|---|---|---|---|
{rows}

Our mean checks every number and does not depend on the order in which sites answer, unlike a plain mean. It takes
milliseconds per round. Other measurements have their own scripts in `benchmarks/`: the cost of federation
(`federation_overhead.py`), codecs (`codec_costs.py`, `codec_rates.py`), the loss of FCL (`fcl_loss.py`), ten kills of
a run (`ten_kills.py`), and faults of real processes (`fault_matrix.py`).
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="small")
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write the page")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = table(get_preset(arguments.preset), arguments.repeats)
    rows = "\n".join(one.row for one in found)
    print(rows)
    if arguments.write:
        load, cores = os.getloadavg()[0], os.cpu_count()
        arguments.write.write_text(PAGE.format(repeats=arguments.repeats, load=load, cores=cores, rows=rows))


if __name__ == "__main__":
    main()
