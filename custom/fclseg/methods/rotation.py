"""Rotation prediction (Gidaris et al. 2018): by how many quarter turns was the image rotated?"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from fclseg.data.sampler import Batch
from fclseg.methods.base import Method
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset

TURNS = 4


def quarter_turns(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """All four rotations of the images [B, ...] -> [4B, ...], and the number of quarter turns of each [4B]."""
    turned = torch.cat([torch.rot90(images, turns, dims=(2, 3)) for turns in range(TURNS)])
    return turned, torch.arange(TURNS, device=images.device).repeat_interleave(len(images))


class Rotation(Method):
    """A classifier of the four rotations on the projector's output, so that no part of the network stays untrained."""

    learning_rates: ClassVar[Mapping[str, float]] = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3}

    def __init__(self, preset: Preset, *, encoder: EncoderFactory = Encoder):
        super().__init__(preset, encoder=encoder)
        self.classifier = nn.Linear(preset.networks.feature_size, TURNS)

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        images, turns = quarter_turns(self.views(batch.images, generator))
        return functional.cross_entropy(self.classifier(self.online(images)), turns)
