"""Global and local contrastive learning (Chaitanya et al. 2020): the method of FedGL and Local CL.

First the encoder learns to distinguish the partitions of volumes (global stage). Then the first decoder blocks learn to
distinguish regions of an image, on top of the frozen encoder (local stage).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from torch.nn import functional

from fclseg.data.augment import RANGES, Views
from fclseg.data.sampler import Batch, SliceSampler
from fclseg.methods.base import Method
from fclseg.methods.infonce import contrastive_loss
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.unet import Decoder, Encoder
from fclseg.presets import Preset

PLACE_ONLY = replace(RANGES, gamma=1.0, contrast=0.0, brightness=0.0, noise=0.0, blur=0.0)
INTENSITY_ONLY = replace(RANGES, area=(1.0, 1.0), aspect=1.0, rotation=0.0)


def global_loss(features: torch.Tensor, partitions: torch.Tensor, temperature: float) -> torch.Tensor:
    """The loss G^D over features [N, D] of both views with their partitions [N].

    Positives of a feature are all others of its partition (its own other view and other volumes), negatives are all
    features of other partitions.
    """
    features = functional.normalize(features, dim=1)
    scores = features @ features.T / temperature
    same = partitions[:, None] == partitions[None, :]
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    return contrastive_loss(scores, scores, positive_mask=same & ~itself, negative_mask=~same).mean()


def local_loss(first: torch.Tensor, second: torch.Tensor, temperature: float) -> torch.Tensor:
    """The loss L^R over regions [B, R, F] of two versions of each image, in both directions.

    The positive of a region is the same region of the other version; negatives are the image's other R - 1 regions.
    """
    first, second = functional.normalize(first, dim=2), functional.normalize(second, dim=2)
    scores = first @ second.transpose(1, 2) / temperature
    regions = scores.shape[1]
    others = ~torch.eye(regions, dtype=torch.bool, device=scores.device).repeat(len(scores), 1)
    rows = [scores.flatten(0, 1), scores.transpose(1, 2).flatten(0, 1)]
    positives = scores.diagonal(dim1=1, dim2=2).reshape(-1, 1)
    first_way, second_way = (contrastive_loss(positives, row, negative_mask=others).mean() for row in rows)
    return (first_way + second_way) / 2


class GlobalLocal(Method):
    """Encoder network, then ``decoder``: the first ``decoder_blocks`` of the U-Net's decoder with a 1x1 convolution.

    The global stage takes the fraction ``global_share`` of the rounds. Only this stage trains the encoder.
    """

    learning_rates: ClassVar[Mapping[str, float]] = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3}

    def __init__(
        self,
        preset: Preset,
        decoder_blocks: int = 2,
        global_share: float = 0.75,
        regions: int = 13,
        region_size: int = 3,
        *,
        encoder: EncoderFactory = Encoder,
    ):
        super().__init__(preset, encoder=encoder)
        self.levels = decoder_blocks + 1
        channels = preset.networks.channels[-self.levels :]
        self.decoder = Decoder(channels, classes=channels[0])
        self.global_share, self.regions, self.region_size = global_share, regions, region_size
        self.place, self.intensity = Views(preset, PLACE_ONLY), Views(preset, INTENSITY_ONLY)
        self.local_stage = False

    def begin_round(self, sampler: SliceSampler, round_number: int, generator: torch.Generator) -> None:
        self.local_stage = round_number >= self.global_share * self.preset.pretraining.rounds

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        if self.local_stage:
            return self._local(batch, generator)
        views = torch.cat([self.views(batch.images, generator), self.views(batch.images, generator)])
        return global_loss(self.online(views), batch.partitions.repeat(2), self.preset.pretraining.temperature)

    def _local(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        """Two versions that differ only in intensity, so that a region shows the same anatomy in both."""
        placed = self.place(batch.images, generator)
        versions = torch.cat([self.intensity(placed, generator), self.intensity(placed, generator)])
        self.online.eval()  # BatchNorm statistics stay fixed too: nothing in the encoder changes in this stage
        with torch.no_grad():
            maps = self.online.encoder(versions)
        self.online.train(self.training)
        first, second = self._regions(self.decoder(maps[-self.levels :]), generator).chunk(2)
        return local_loss(first, second, self.preset.pretraining.temperature)

    def _regions(self, maps: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Feature vectors [2B, R, F] of random regions that do not overlap, at the same places for all images."""
        patches = functional.unfold(maps, self.region_size, stride=self.region_size).transpose(1, 2)
        chosen = torch.randperm(patches.shape[1], generator=generator)[: self.regions]
        return patches[:, chosen.to(patches.device)]
