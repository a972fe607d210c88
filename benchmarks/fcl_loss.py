"""Measures how much of an FCL training step drawing Q' and the loss take, forward and backward.

    python benchmarks/fcl_loss.py [--preset small] [--sites 4] [--steps 20]

Prints one line.
"""

import argparse
import time

import torch
from torch.nn import functional

from fclseg.anatomy.families.acdc import ANATOMY
from fclseg.data.sampler import Batch
from fclseg.methods.fcl import FCL, fcl_loss
from fclseg.methods.infonce import draw_without_replacement
from fclseg.methods.training import make_optimizer
from fclseg.presets import Preset, get_preset


def method_with_banks(preset: Preset, sites: int) -> FCL:
    method = FCL(preset).to(memory_format=torch.channels_last)
    banks = {f"site-{k}": torch.randn(preset.pretraining.bank_size, preset.networks.feature_size) for k in range(sites)}
    partitions = torch.arange(preset.pretraining.bank_size) % ANATOMY.partitions
    method.bank.push(banks.pop("site-0"), partitions)
    method.receive_others("bank", {site: {"features": f, "partitions": partitions} for site, f in banks.items()})
    return method


def step_seconds(method: FCL, steps: int) -> float:
    preset, draws = method.preset, torch.Generator().manual_seed(0)
    optimizer = make_optimizer(method)
    images = torch.rand(2, preset.pretraining.batch_size, 1, preset.images.size, preset.images.size)
    batch = Batch(images[0], torch.arange(preset.pretraining.batch_size) % ANATOMY.partitions, partners=images[1])

    def step() -> None:
        optimizer.zero_grad()
        method.loss(batch, draws).backward()
        optimizer.step()
        method.after_step()

    return seconds(step, steps)


def loss_seconds(method: FCL, steps: int) -> float:
    preset, draws = method.preset, torch.Generator().manual_seed(0)
    count = 2 * preset.pretraining.batch_size
    keys = functional.normalize(torch.randn(count, 2, preset.networks.feature_size), dim=2)
    queries = keys[:, 0].clone().requires_grad_()
    partitions = torch.arange(count) % ANATOMY.partitions

    def loss() -> None:
        bank, ids = method.aggregated_bank()
        sample = draw_without_replacement(count, len(bank), preset.pretraining.bank_size, draws)
        fcl_loss(
            queries, keys, partitions, bank, ids, temperature=preset.pretraining.temperature, sample=sample
        ).backward()

    return seconds(loss, steps)


def seconds(work, times: int) -> float:
    work()
    started = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - started) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="small")
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20, help="how often either is timed")
    options = parser.parse_args()
    method = method_with_banks(get_preset(options.preset), options.sites)
    step, loss = step_seconds(method, options.steps), loss_seconds(method, options.steps)
    print(
        f"fcl_loss preset={options.preset} sites={options.sites} threads={torch.get_num_threads()}: "
        f"loss {1e3 * loss:.1f} ms of a step of {1e3 * step:.1f} ms = {loss / step:.1%}"
    )


if __name__ == "__main__":
    main()
