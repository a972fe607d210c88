"""BatchNorm statistics of a network that trains on one kind of images and is meant for another."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def statistics_kept(network: nn.Module) -> Iterator[None]:
    """Forward passes in training mode normalise by their batch as usual, but do not update the running statistics.

    In this way, a network that trains on phantoms but is meant for patients keeps the patients' statistics.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, own in zip(norms, before, strict=True):
            norm.momentum = own
