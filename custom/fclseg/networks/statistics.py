"""BatchNorm statistics of a network that moves from one kind of images to another."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn


def _norms(network: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


@contextmanager
def _momentum(network: nn.Module, momentum: float | None) -> Iterator[None]:
    norms = _norms(network)
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = momentum
    try:
        yield
    finally:
        for norm, own in zip(norms, before, strict=True):
            norm.momentum = own


@contextmanager
def statistics_kept(network: nn.Module) -> Iterator[None]:
    """Forward passes in training mode normalise by their batch as usual, but do not update the running statistics.

    In this way, a network that trains on phantoms but is meant for patients keeps the patients' statistics.
    """
    with _momentum(network, 0.0):
        yield


@torch.no_grad()
def estimate_statistics(network: nn.Module, batches: Iterable[torch.Tensor]) -> None:
    """Replace the running statistics of the whole network by the plain average over ``batches``. Weights do not change.

    This adapts a network to images of another scanner without any labels.
    """
    training = network.training
    for norm in _norms(network):
        norm.reset_running_stats()
    network.train()
    with _momentum(network, None):  # in PyTorch this means the cumulative average
        for images in batches:
            network(images)
    network.train(training)
