"""A U-Net whose encoder can be frozen: for frozen-encoder evaluation and for a warm-up of the decoder."""

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from fclseg.networks.interface import EncoderFactory
from fclseg.networks.unet import Encoder, UNet
from fclseg.randomness import derive_seed


class FreezableUNet(UNet):
    """A U-Net whose initial weights depend only on ``seed``, with a switch that freezes the encoder.

    A frozen encoder also keeps its BatchNorm statistics, so that every one of its tensors stays bit-identical.
    """

    def __init__(
        self,
        channels: Sequence[int],
        classes: int,
        seed: int = 0,
        encoder: EncoderFactory = Encoder,
        patch: int = 1,
    ):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "weights"))
            super().__init__(channels, classes, encoder, patch)
        self.classes = classes
        self.frozen = False

    def freeze(self, frozen: bool = True) -> None:
        self.frozen = frozen
        self.encoder.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> "FreezableUNet":
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self


@torch.no_grad()
def measure_statistics(network: UNet, batches: Iterable[torch.Tensor]) -> None:
    """Give an encoder that never saw an image its BatchNorm statistics: the plain average over ``batches``.

    A frozen random encoder would otherwise use the meaningless initial mean 0 and variance 1, and the comparison with a
    pre-trained one would be unfair. An encoder that has statistics is left alone.
    """
    norms = [module for module in network.encoder.modules() if isinstance(module, nn.BatchNorm2d)]
    if any(norm.num_batches_tracked is not None and norm.num_batches_tracked > 0 for norm in norms):
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # PyTorch then computes the cumulative average
        norm.train()
    for images in batches:
        network.encoder(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
