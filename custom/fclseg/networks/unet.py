"""The 2D U-Net of the paper, with encoder and decoder as separate modules.

Its layers are exactly those behind the paper's byte counts: two conv3x3-BatchNorm-LeakyReLU per level and max pooling
between levels (``paper``: 48-96-192-384).

With ``patch`` = p, the first level works on p x p pixels at once: they become p² input channels, and the decoder
predicts the classes of all of them. The network then sees and outlines fine pixels at the cost of coarse ones.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import pixel_shuffle, pixel_unshuffle

from fclseg.networks.blocks import Down, TwoConv, UpCat
from fclseg.networks.interface import EncoderFactory, build_encoder


class Encoder(nn.Module):
    """Image [B, 1, H, W] -> one feature map per level; the last is the coarsest. This is what pre-training learns."""

    def __init__(self, channels: Sequence[int], patch: int = 1):
        super().__init__()
        self.channels = tuple(channels)
        self.patch = patch
        self.stem = TwoConv(patch**2, channels[0])
        self.down = nn.ModuleList(Down(i, o) for i, o in pairwise(channels))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        maps = [self.stem(pixel_unshuffle(x, self.patch))]
        for down in self.down:
            maps.append(down(maps[-1]))
        return maps


class Decoder(nn.Module):
    """Feature maps of the encoder -> class scores [B, classes, H, W]."""

    def __init__(self, channels: Sequence[int], classes: int, patch: int = 1):
        super().__init__()
        self.patch = patch
        fine_to_coarse = list(pairwise(channels))
        self.up = nn.ModuleList(UpCat(coarse, fine, fine) for fine, coarse in reversed(fine_to_coarse))
        self.head = nn.Conv2d(channels[0], classes * patch**2, kernel_size=1)

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        """Loops by index instead of zip, because TorchScript cannot loop over layers and tensors in any other way."""
        x = maps[-1]
        for i, up in enumerate(self.up):
            x = up(x, maps[len(maps) - 2 - i])
        return pixel_shuffle(self.head(x), self.patch)


class UNet(nn.Module):
    """Encoder and decoder: the segmentation network that is fine-tuned."""

    def __init__(self, channels: Sequence[int], classes: int, encoder: EncoderFactory = Encoder, patch: int = 1):
        super().__init__()
        self.encoder = build_encoder(encoder, channels, patch)
        self.decoder = Decoder(channels, classes, patch)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(x))
