"""Error of a decoded update against its bytes, for every coder, on updates of a real training: prints one line each.

    python benchmarks/codec_rates.py [--preset small] [--set NAME=VALUE] [--rounds 4] [--figure FILE]

The update is that of the online network and the predictor in the last of a few rounds on a phantom. An error of 1
corresponds to sending nothing.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch

from fclseg.anatomy.folders import read_folder
from fclseg.cli.options import preset_change
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import open_store
from fclseg.federation.codecs.codec import Codec
from fclseg.federation.codecs.exact import Exact
from fclseg.federation.codecs.steps import Steps
from fclseg.federation.codecs.uniform import Uniform
from fclseg.federation.states import Arrays, array_bytes, parameter_names, to_arrays
from fclseg.methods.registry import build_method
from fclseg.methods.training import make_optimizer, train_round
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import Preset, full_name, get_preset

COMPONENTS = ("online", "predictor")
FAMILIES = {
    "every bit": [Exact()],
    "uniform, per channel": [Uniform(bits) for bits in (8, 4, 2)],
    "steps (tiny)": [Steps(bits) for bits in (3.0, 2.0, 1.4, 1.0, 0.5)],
}


def update(preset: Preset, rounds: int) -> tuple[dict[str, Arrays], dict[str, Arrays]]:
    """The components before and after the last round of a short training."""
    with tempfile.TemporaryDirectory() as folder:
        write_phantom(Path(folder) / "data", patients=4, frames=2)
        volumes = read_folder(Path(folder) / "data")
        spacing = preset.images.spacing(volumes[0].anatomy)
        store = open_store(
            volumes, image_size=preset.images.size, spacing=spacing, cache=Path(folder) / "cache", progress=False
        )
        method = build_method("fclopt", preset, seed=0)
        optimizer = make_optimizer(method)
        size = preset.pretraining.batch_size
        sampler = SliceSampler(store, store.select(), size, partners=method.wants_partners, device=torch.device("cpu"))
        for number in range(rounds):
            before = {name: to_arrays(method.send(name)) for name in COMPONENTS}
            train_round(
                method,
                sampler,
                optimizer,
                lr=method.learning_rate,
                epochs=preset.pretraining.local_epochs,
                seed=0,
                site="site-1",
                round_number=number,
            )
    return before, {name: to_arrays(method.send(name)) for name in COMPONENTS}


def rate(codec: Codec, before: dict[str, Arrays], after: dict[str, Arrays]) -> tuple[float, float]:
    """Bits per number, and the squared error of the decoded update relative to its square."""
    size, error, square = 0, 0.0, 0.0
    for name, arrays in after.items():
        sent = codec.encode(arrays, before[name])
        size += sent.message.size
        for key in parameter_names(arrays):
            error += float(np.square(sent.decoded[key] - arrays[key], dtype=np.float64).sum())
            square += float(np.square(before[name][key] - arrays[key], dtype=np.float64).sum())
    return 32 * size / sum(map(array_bytes, after.values())), error / square


def draw(points: dict[str, list[tuple[float, float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for family, pairs in points.items():
        shown = [pair for pair in pairs if pair[1] > 0]
        axes.plot(*zip(*shown, strict=True), "o-", label=family)
    axes.set(xscale="log", yscale="log", xlabel="bits per number", ylabel="squared error / squared update")
    axes.set(xlim=(0.5, 5), ylim=(0.005, 1))  # the coders differ here; 8 bits and more lose almost nothing
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="small")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change the preset; repeatable"
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--figure", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    changes = {full_name(name): value for name, value in map(preset_change, arguments.set)}
    before, after = update(get_preset(arguments.preset, **changes), arguments.rounds)
    points: dict[str, list[tuple[float, float]]] = {}
    for family, coders in FAMILIES.items():
        for coder in coders:
            bits, error = rate(Codec(coder, halves=not isinstance(coder, Exact)), before, after)
            points.setdefault(family, []).append((bits, error))
            print(f"{family}: {coder}: {bits:.2f} bits per number, squared error {error:.5f}", flush=True)
    if arguments.figure:
        draw(points, arguments.figure)


if __name__ == "__main__":
    main()
