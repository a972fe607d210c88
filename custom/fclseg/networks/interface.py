"""The interface of an encoder. Any module that implements it can replace the paper's encoder."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from fclseg.errors import FCLSegError


@runtime_checkable
class EncoderInterface(Protocol):
    """A module that turns images [B, 1, H, W] into feature maps, one per level, from fine to coarse.

    Map number i has ``channels[i]`` channels and 1 / 2^i of the image's height and width, because the decoder doubles
    the size at each level. An encoder for patches of p x p pixels has 1 / p of that. The mean of the
    last map is the feature vector that pre-training compares.
    """

    channels: tuple[int, ...]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]: ...


EncoderFactory = Callable[..., nn.Module]
"""Widths (the preset's ``networks.channels``) -> a new encoder that implements ``EncoderInterface``. It is called with
``patch=p`` only if the preset's ``networks.patch`` is not 1."""


def widths(encoder: nn.Module) -> tuple[int, ...]:
    """The widths that an encoder declares."""
    if not isinstance(encoder, EncoderInterface):
        raise FCLSegError(f"{type(encoder).__name__} is not an encoder: give it 'channels' and 'forward'")
    return tuple(encoder.channels)


def build_encoder(factory: EncoderFactory, channels: Sequence[int], patch: int = 1) -> nn.Module:
    """A new encoder of these widths. A violation of the interface is reported here, before a run starts."""
    encoder = factory(channels) if patch == 1 else factory(channels, patch=patch)
    if widths(encoder) != tuple(channels):
        raise FCLSegError(
            f"{type(encoder).__name__} has the widths {widths(encoder)}, but the preset has {tuple(channels)}: "
            "set networks.channels to the encoder's widths"
        )
    return encoder
