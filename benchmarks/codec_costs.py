"""Measures the cost of encoding and decoding an update of the paper's networks. Prints one line per codec.

    python benchmarks/codec_costs.py [--codecs lossless 8bit tiny] [--quantizers float16 adaquant] [--batch 2]

The update is that of the online network and the predictor after a BYOL step on random images. The time is compared
with a local epoch of ``steps`` such steps of the preset's batch; a step is timed with ``batch`` images per view and
scaled up, which takes seconds instead of minutes. Memory is the peak of encoding and decoding, in units of networks.
"""

import argparse
import time
import tracemalloc

import numpy as np
import torch

from fclseg.data.sampler import Batch
from fclseg.federation.codecs.codec import Codec
from fclseg.federation.codecs.presets import CODECS
from fclseg.federation.states import Arrays, array_bytes, parameter_names, to_arrays
from fclseg.methods.registry import build_method
from fclseg.methods.training import make_optimizer
from fclseg.presets import get_preset

COMPONENTS = ("online", "predictor")
TARGET = 0.05


def one_step(images: int) -> tuple[dict[str, Arrays], dict[str, Arrays], float]:
    """The components before and after a step, and the time of the step for a whole batch."""
    preset = get_preset("paper")
    method = build_method("fclopt", preset, seed=0)
    optimizer, size = make_optimizer(method), preset.images.size
    batch = Batch(torch.rand(images, 1, size, size), torch.zeros(images, dtype=torch.uint8))
    for _ in range(2):  # the first step prepares kernels and memory and is not timed
        before = {name: to_arrays(method.send(name)) for name in COMPONENTS}
        started = time.perf_counter()
        optimizer.zero_grad()
        method.loss(batch, torch.Generator().manual_seed(0)).backward()
        optimizer.step()
        method.after_step()
    seconds = (time.perf_counter() - started) * preset.pretraining.batch_size / images
    return before, {name: to_arrays(method.send(name)) for name in COMPONENTS}, seconds


def code(codec: Codec, before: dict[str, Arrays], after: dict[str, Arrays]) -> tuple[int, float]:
    """Bytes of all components, and the squared error of the decoded update relative to its square."""
    size, error, square = 0, 0.0, 0.0
    for name, arrays in after.items():
        sent = codec.encode(arrays, before[name])
        decoded = codec.decode(sent.message, arrays, before[name])
        size += sent.message.size
        for key in parameter_names(arrays):
            error += float(np.square(decoded[key] - arrays[key], dtype=np.float64).sum())
            square += float(np.square(before[name][key] - arrays[key], dtype=np.float64).sum())
    return size, error / square


def peak(codec: Codec, before: dict[str, Arrays], after: dict[str, Arrays]) -> float:
    """Peak memory, in units of networks."""
    tracemalloc.start()
    sent = codec.encode(after["online"], before["online"]).message
    codec.decode(sent, after["online"], before["online"])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / array_bytes(after["online"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codecs", nargs="+", choices=list(CODECS), default=list(CODECS))
    parser.add_argument("--batch", type=int, default=2, help="images in the timed step (default 2)")
    parser.add_argument("--steps", type=int, default=47, help="steps per local epoch (default 47, the paper's)")
    parser.add_argument(
        "--quantizers", nargs="*", default=[], help="kinds of NVFlare's ModelQuantizer, which needs bitsandbytes"
    )
    arguments = parser.parse_args()
    before, after, step = one_step(arguments.batch)
    whole = sum(map(array_bytes, after.values()))
    for name in arguments.codecs:
        codec = CODECS[name].networks
        started = time.perf_counter()
        size, error = code(codec, before, after)
        seconds = time.perf_counter() - started
        share = seconds / (arguments.steps * step)
        print(
            f"codec {name}: {size / 1e6:.2f} of {whole / 1e6:.1f} MB ({size / whole:.3f}), squared error {error:.4f}, "
            f"encoding and decoding {seconds:.2f} s = {share:.2%} of {arguments.steps} steps of {step:.1f} s "
            f"(target {TARGET:.0%}: {'ok' if share <= TARGET else 'ABOVE TARGET'}), "
            f"{peak(codec, before, after):.1f} networks of memory",
            flush=True,
        )

    for kind in arguments.quantizers:
        from model_quantizer import quantize  # beside this file; bitsandbytes is not one of our dependencies

        started = time.perf_counter()
        size, error = quantize(kind, before, after)
        seconds = time.perf_counter() - started
        print(
            f"ModelQuantizer {kind}: {size / 1e6:.2f} of {whole / 1e6:.1f} MB ({size / whole:.3f}), squared error "
            f"{error:.4f}, {seconds:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
