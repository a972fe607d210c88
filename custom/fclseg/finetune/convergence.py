"""Training until convergence: the rule for fine-tuning outside of a study.

The learning rate stays constant until the mean training loss of a window of epochs is less than 3 % below that of the
previous window. It then falls to zero along a cosine, over half as many epochs as have passed. A window is 150
optimiser steps, but at least 5 epochs; after 20 windows the rate falls in any case. The rule depends only on the
losses, so an interrupted training continues as if it had not been interrupted.
"""

import math
from collections.abc import Sequence

import torch
from ignite.engine import Engine, Events
from monai.handlers import LrScheduleHandler

from fclseg.finetune.handlers import LossHistory

WINDOW_STEPS = 150
SHORTEST_WINDOW = 5
GAIN = 0.03
MOST_WINDOWS = 20


def window_of(steps_per_epoch: int) -> int:
    """In epochs."""
    return max(SHORTEST_WINDOW, math.ceil(WINDOW_STEPS / steps_per_epoch))


def longest(window: int) -> int:
    """The maximum number of epochs of a training."""
    latest = MOST_WINDOWS * window
    return latest + latest // 2


def converged_at(losses: Sequence[float], window: int) -> int | None:
    """The first epoch after which the loss hardly decreases."""
    for epoch in range(2 * window, len(losses) + 1):
        before, now = (sum(losses[end - window : end]) / window for end in (epoch - window, epoch))
        if now > (1 - GAIN) * before or epoch >= MOST_WINDOWS * window:
            return epoch
    return None


def rate_factor(losses: Sequence[float], window: int) -> float:
    """The factor on the learning rate after these epochs."""
    start = converged_at(losses, window)
    if start is None:
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (len(losses) - start) / (start // 2))))


class UntilConverged:
    """Sets the learning rate of every epoch and ends the training. Attach it after the history of losses."""

    def __init__(self, history: LossHistory, optimizer: torch.optim.Optimizer, steps_per_epoch: int):
        self.history, self.optimizer, self.window = history, optimizer, window_of(steps_per_epoch)
        self.rates = [group["lr"] for group in optimizer.param_groups]

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.EPOCH_COMPLETED, self)

    def __call__(self, engine: Engine) -> None:
        losses = self.history.losses
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * rate_factor(losses, self.window)
        start = converged_at(losses, self.window)
        if start is not None:
            self.history.end_after(engine, start + start // 2)


def schedule(
    epochs: int | None,
    lr_scheduler: torch.optim.lr_scheduler.LRScheduler,
    history: LossHistory,
    optimizer: torch.optim.Optimizer,
    steps_per_epoch: int,
) -> LrScheduleHandler | UntilConverged:
    """The learning rate handler: for a given number of epochs, or for training until convergence."""
    if epochs is not None:
        return LrScheduleHandler(lr_scheduler, print_lr=False)
    return UntilConverged(history, optimizer, steps_per_epoch)
