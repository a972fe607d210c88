"""Measures how much of a BYOL training step loading slices and making two views takes. Prints one line.

    python benchmarks/augmentation.py [--preset small] [--steps 100]

Loading and views are timed inside the same rounds that they are compared with.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import open_store
from fclseg.methods.base import Method
from fclseg.methods.registry import build_method
from fclseg.methods.training import make_optimizer, train_round
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset

TARGET = 0.10
"""Augmentation and loading together should take at most this fraction of a step."""


class Stopwatch:
    """Adds up the time spent in the wrapped function."""

    def __init__(self):
        self.seconds = 0.0

    def time(self, function, *arguments):
        started = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            self.seconds += time.perf_counter() - started


class TimedSampler(SliceSampler):
    """A sampler whose stopwatch runs while a batch is fetched."""

    stopwatch: Stopwatch

    def epoch(self, generator):
        batches = super().epoch(generator)
        while (batch := self.stopwatch.time(next, batches, None)) is not None:
            yield batch


def phantom_sampler(folder: Path, method: Method) -> TimedSampler:
    preset = method.preset
    write_phantom(folder / "data", patients=4)
    store = open_store(
        read_folder(folder / "data"),
        image_size=preset.images.size,
        spacing=preset.images.spacing(ANATOMIES["acdc"]),
        cache=folder / "cache",
        progress=False,
    )
    return TimedSampler(store, store.select(), preset.pretraining.batch_size, partners=method.wants_partners)


def measure(sampler: TimedSampler, method: Method, least: int) -> tuple[float, float, float, int]:
    """Seconds for loading, for making views and in total, and the number of steps (at least ``least``)."""
    optimizer, views = make_optimizer(method), method.views
    total, steps, round_number = 0.0, 0, 0
    while steps < least:
        if round_number < 2:  # counting starts with the second round, because the first one is a warm-up
            sampler.stopwatch, viewing = Stopwatch(), Stopwatch()
            method.views = partial(viewing.time, views)
        settings = {"lr": 0.01, "epochs": 1, "seed": 0, "site": "site-1", "round_number": round_number}
        result = train_round(method, sampler, optimizer, **settings)
        if round_number > 0:
            total, steps = total + result.seconds, steps + result.steps
        round_number += 1
    return sampler.stopwatch.seconds, viewing.seconds, total, steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="small")
    parser.add_argument("--steps", type=int, default=100, help="at least this many training steps (default 100)")
    arguments = parser.parse_args()
    preset = get_preset(arguments.preset)
    method = build_method("fclopt", preset, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        loading, viewing, total, steps = measure(phantom_sampler(Path(folder), method), method, arguments.steps)
    share = (loading + viewing) / total
    print(
        f"augmentation: {share:.1%} of a {preset.name} BYOL step of {1000 * total / steps:.1f} ms (loading "
        f"{1000 * loading / steps:.2f} ms, two views {1000 * viewing / steps:.2f} ms, {steps} steps of "
        f"batch {preset.pretraining.batch_size}); target at most {TARGET:.0%}: {'met' if share <= TARGET else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
