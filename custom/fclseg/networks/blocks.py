"""The blocks of the U-Net: MONAI's ``TwoConv``, ``Down`` and ``UpCat`` in 2D, in plain torch.

Names, initial weights and outputs are those of MONAI, bit for bit (``tests/networks/test_blocks.py``). They are
reimplemented here because a site's task may be a separate process, and importing MONAI takes longer than the task.
"""

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad
from torch.nn.utils.fusion import fuse_conv_bn_eval

SLOPE = 0.1
"""Slope of the leaky ReLU below zero."""


def convolution(in_channels: int, out_channels: int) -> nn.Sequential:
    """conv3x3-BatchNorm-LeakyReLU."""
    normalised = OrderedDict(N=nn.BatchNorm2d(out_channels), A=nn.LeakyReLU(SLOPE, inplace=True))
    conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)
    return nn.Sequential(OrderedDict(conv=conv, adn=nn.Sequential(normalised)))


class TwoConv(nn.Sequential):
    """Two convolutions at one level."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.conv_0 = convolution(in_channels, out_channels)
        self.conv_1 = convolution(out_channels, out_channels)


class Down(nn.Sequential):
    """To the next coarser level: max pooling and two convolutions."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.max_pooling = nn.MaxPool2d(kernel_size=2)
        self.convs = TwoConv(in_channels, out_channels)


class UpCat(nn.Module):
    """To the next finer level: transposed convolution, the encoder's feature map concatenated, two convolutions."""

    def __init__(self, in_channels: int, skip_channels: int, out_channels: int):
        super().__init__()
        half = in_channels // 2
        self.upsample = nn.Sequential(OrderedDict(deconv=nn.ConvTranspose2d(in_channels, half, 2, stride=2)))
        self.convs = TwoConv(skip_channels + half, out_channels)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        x = self.upsample(x)
        # Max pooling drops the last row or column of an odd size. The decoder repeats its own to restore the size.
        x = pad(x, [0, skip.size(-1) - x.size(-1), 0, skip.size(-2) - x.size(-2)], "replicate")
        return self.convs(torch.cat([skip, x], dim=1))


def folded(network: nn.Module) -> nn.Module:
    """A copy of a network for inference, with the BatchNorm of its ``TwoConv`` folded into the convolutions.

    It computes the same function up to rounding and has a third fewer layers to run.
    """
    network = copy.deepcopy(network).eval()
    for block in [module for module in network.modules() if isinstance(module, TwoConv)]:
        for name, part in list(block.named_children()):
            setattr(block, name, _folded(part))
    return network


def _folded(part: Any) -> nn.Sequential:
    """A ``convolution`` as conv3x3-LeakyReLU."""
    return nn.Sequential(fuse_conv_bn_eval(part.conv, part.adn.N), part.adn.A)
