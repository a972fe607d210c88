"""Measures what the slice store saves. Prints one line.

    python benchmarks/slice_store.py [--preset small] [--patients 10] [--data DIR]

Times building a store, opening it again, and reading random batches from it, on phantom data or on your own folder.
"""

import argparse
import tempfile
import time
from pathlib import Path

from fclseg.anatomy.folders import read_folder
from fclseg.data.preprocess import Preprocessor
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import open_store
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset
from fclseg.randomness import generator

SECONDS = 3.0
"""How long to read batches."""


def timed(function, *arguments, **options):
    started = time.perf_counter()
    result = function(*arguments, **options)
    return result, time.perf_counter() - started


def reading_rate(sampler: SliceSampler) -> float:
    """Slices per second, in shuffled epochs as in training."""
    slices, epoch, started = 0, 0, time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        slices += sum(len(batch.images) for batch in sampler.epoch(generator(0, epoch)))
        epoch += 1
    return slices / (time.perf_counter() - started)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="small")
    parser.add_argument("--patients", type=int, default=10, help="number of phantom patients (default 10)")
    parser.add_argument("--data", type=Path, help="a data folder instead of the phantom")
    arguments = parser.parse_args()
    preset = get_preset(arguments.preset)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.data is None:
            write_phantom(Path(folder) / "data", patients=arguments.patients)
        volumes = read_folder(arguments.data or Path(folder) / "data")
        spacing = preset.images.spacing(volumes[0].anatomy)
        Preprocessor(preset.images.size, spacing)  # so that the time to import MONAI does not count
        size = {
            "image_size": preset.images.size,
            "spacing": spacing,
            "cache": Path(folder) / "cache",
            "progress": False,
        }
        store, build = timed(open_store, volumes, **size)
        _, reopen = timed(open_store, volumes, **size)
        rate = reading_rate(SliceSampler(store, store.select(), preset.pretraining.batch_size))
        megabytes = sum(path.stat().st_size for path in store.folder.iterdir()) / 1e6
    print(
        f"slice store, {preset.name}: {len(volumes)} volumes, {len(store)} slices, {megabytes:.1f} MB; built in "
        f"{build:.2f} s, opened again in {1000 * reopen:.1f} ms ({build / reopen:.0f} times faster); "
        f"{rate:,.0f} slices/s in random batches of {preset.pretraining.batch_size}"
    )


if __name__ == "__main__":
    main()
