"""Trains a segmentation network on an endless stream of phantoms; an interrupted training continues where it was.

The learning rate is constant and falls to zero at the end. The loss is soft Dice with cross-entropy, and cross-entropy
alone while the rate falls: soft Dice enlarges thin, uncertain structures (Bertels et al., MICCAI 2019). What is kept is
a moving average of the weights, averaged once more with its own state in the middle of the training: a long training
fits the phantom better than it fits patients (Wortsman et al. 2022 average with the start for the same reason).
"""

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from fclseg.data.augment import WINDOWS, augment_labelled
from fclseg.device import computes_in_bfloat16
from fclseg.finetune.phantom_stream import PhantomStream
from fclseg.methods.labelled_loss import soft_dice
from fclseg.networks.freezable import FreezableUNet
from fclseg.randomness import generator

WARM_UP, SAVE_EVERY, GRADIENT_NORM, AVERAGE = 100, 250, 2.0, 0.998


@dataclass(frozen=True)
class Schedule:
    steps: int
    decay: int  # the last steps, in which the rate falls to zero
    middle: int | None = None  # the state after this many steps has half of the final average
    lr: float = 1.5e-3

    def rate(self, step: int) -> float:
        falling = min(1.0, (self.steps - step) / self.decay)
        return self.lr * min(1.0, (step + 1) / WARM_UP) * falling

    def settles(self, step: int) -> bool:
        return self.steps - step < self.decay


def train_on_phantoms(network: FreezableUNet, stream: PhantomStream, schedule: Schedule, state: Path) -> FreezableUNet:
    """The averaged network. ``state`` is written every few minutes and removed at the end."""
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average, middle = copy.deepcopy(network), copy.deepcopy(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=schedule.lr, weight_decay=1e-2, betas=(0.9, 0.99))
    parts = {"network": network, "average": average, "middle": middle, "optimizer": optimizer}
    begin = _restore(parts, state)
    for step in tqdm(range(begin, schedule.steps), "training", schedule.steps, initial=begin, disable=None):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step)
        _step(network, optimizer, stream, step, schedule.settles(step))
        _follow(average, network, min(AVERAGE, (step + 1) / (step + 10)))
        if step + 1 == schedule.middle:
            middle.load_state_dict(average.state_dict())
        if (step + 1) % SAVE_EVERY == 0:
            _save(parts, step + 1, state)
    if schedule.middle is not None:
        _follow(average, middle, 0.5)
    state.unlink(missing_ok=True)
    return average.eval()


def _step(network: nn.Module, optimizer: torch.optim.Optimizer, stream: PhantomStream, step: int, settle: bool) -> None:
    images, labels = augment_labelled(*stream.batch(step), generator(stream.seed, "phantom views", step), WINDOWS)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=computes_in_bfloat16(images.device, on_cpu=True)):
        scores = network(images.contiguous(memory_format=torch.channels_last))
    scores = scores.float()
    loss = F.cross_entropy(scores, labels[:, 0])
    if not settle:
        loss = loss + soft_dice(scores, F.one_hot(labels[:, 0], scores.shape[1]).movedim(-1, 1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), GRADIENT_NORM)
    optimizer.step()


@torch.no_grad()
def _follow(average: nn.Module, network: nn.Module, momentum: float) -> None:
    for mean, new in zip(average.state_dict().values(), network.state_dict().values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(new, 1 - momentum)
        else:
            mean.copy_(new)


def _save(parts: dict[str, Any], step: int, state: Path) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    draft = state.with_suffix(".draft")
    torch.save({name: part.state_dict() for name, part in parts.items()} | {"step": step}, draft)
    os.replace(draft, state)


def _restore(parts: dict[str, Any], state: Path) -> int:
    if not state.is_file():
        return 0
    saved = torch.load(state, weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    return saved["step"]
