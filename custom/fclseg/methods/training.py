"""Local training: the optimiser, the cosine schedule over rounds, and one round at one site."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import torch
from torch.nn import functional
from torch.optim import Optimizer

from fclseg.data.sampler import Batch, SliceSampler
from fclseg.device import computes_in_bfloat16
from fclseg.errors import FCLSegError
from fclseg.methods.base import Method
from fclseg.methods.optimizers import BUILDERS
from fclseg.networks.loading import State
from fclseg.randomness import generator


@dataclass(frozen=True)
class RoundResult:
    """What a site reports about one round of local training."""

    loss: float  # mean over the round's steps
    samples: int  # n_c, the site's weight in the aggregation
    steps: int
    seconds: float
    feature_std: float  # the collapse monitor, see feature_std()


def cosine_lr(base: float, round_number: int, rounds: int) -> float:
    """The learning rate of a round (counted from 0): ``base`` in the first round, falling to almost 0 in the last."""
    return base * 0.5 * (1.0 + math.cos(math.pi * min(round_number, rounds) / rounds))


def make_optimizer(method: Method) -> Optimizer:
    """The method's optimiser for its trainable parameters, at the initial learning rate."""
    return BUILDERS[method.optimizer_name](method.preset.pretraining, list(method.trainable()), method.learning_rate)


def optimizer_state(optimizer: Optimizer) -> State:
    """The optimiser's state as flat tensors, keyed ``<parameter index>.<name>``, for the site's state file."""
    return {
        f"{index}.{name}": value.detach().contiguous()
        for index, entries in optimizer.state_dict()["state"].items()
        for name, value in entries.items()
        if value is not None
    }


def load_optimizer_state(optimizer: Optimizer, state: Mapping[str, torch.Tensor]) -> None:
    """Restore the result of ``optimizer_state``; an empty state gives a fresh optimiser."""
    whole = optimizer.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    entries: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in state.items():
        index, name = key.split(".", 1)
        parameter = parameters[int(index)]
        if value.shape == parameter.shape:  # in the parameter's memory layout, so that a resumed step is bit-identical
            value = torch.empty_like(parameter, requires_grad=False).copy_(value)
        entries.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**whole, "state": entries})


def train_round(
    method: Method,
    sampler: SliceSampler,
    optimizer: Optimizer,
    *,
    lr: float,
    epochs: int,
    seed: int,
    site: str,
    round_number: int,
) -> RoundResult:
    """``epochs`` passes over the site's slices; replays exactly for the same seed, site, round and thread count.

    With ``pretraining.epoch_share`` below 1, a pass ends after that share of its batches.
    """
    started = time.perf_counter()
    batches, views, begin = (
        generator(seed, site, round_number, purpose) for purpose in ("batches", "views", "begin_round")
    )
    for group in optimizer.param_groups:
        group["lr"] = lr
    method.train()
    method.begin_round(sampler, round_number, begin)
    total, steps = 0.0, 0
    per_epoch = max(1, round(method.preset.pretraining.epoch_share * sampler.steps_per_epoch))
    for _ in range(epochs):
        for batch in islice(sampler.epoch(batches), per_epoch):
            value = _step(method, optimizer, batch, views)
            total, steps = total + value, steps + 1
            if not math.isfinite(value):
                raise FCLSegError(
                    f"{site}: the loss became {value} in round {round_number}, step {steps}: "
                    f"lower the learning rate ({lr:g}) or check this site's images for damage"
                )
    if not steps:
        raise FCLSegError(f"{site}: there is nothing to train on in round {round_number}: check the site's data folder")
    spread = _measure_spread(method, batch)
    return RoundResult(total / steps, len(sampler), steps, time.perf_counter() - started, spread)


def _step(method: Method, optimizer: Optimizer, batch: Batch, views: torch.Generator) -> float:
    """One optimiser step, in mixed precision on GPUs and on CPUs whose preset asks for it."""
    device = batch.images.device
    mixed = computes_in_bfloat16(device, on_cpu=method.preset.pretraining.bfloat16)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed):
        loss = method.loss(batch, views)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    method.after_step()
    return loss.item()


@torch.no_grad()
def _measure_spread(method: Method, batch: Batch) -> float:
    """The collapse measure on the round's last images, in evaluation mode so that measuring changes nothing."""
    method.eval()
    spread = feature_std(method.features(batch.images))
    method.train()
    return spread


@torch.no_grad()
def feature_std(features: torch.Tensor) -> float:
    """Spread of features [N, D]: sqrt(D) times the mean per-dimension standard deviation of the normalised features.

    Close to 1 when the directions are spread evenly over the sphere, 0 when all features point the same way, which is
    the collapse that negative-free methods risk.
    """
    directions = functional.normalize(features.float(), dim=1)
    return float(directions.std(dim=0, correction=0).mean() * features.shape[1] ** 0.5)
