"""Mean teacher (Tarvainen and Valpola 2017): the target segments unlabelled slices, the online network learns from it.

The target sees the original slice, and the online network an augmented one. The target's prediction is transformed with
the image. On their own, the two networks would confirm each other's mistakes. Phantom slices with their true labels in
every step prevent that. Online and target are whole U-Nets with the same roles as in FCLOpt, so PTNU and DP apply
unchanged.
"""

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import nn

from fclseg.anatomy.base import Anatomy
from fclseg.data.augment import augment_maps
from fclseg.data.sampler import Batch
from fclseg.methods.base import frozen_copy, move_average
from fclseg.methods.segmenter import SegmentationMethod
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset

if TYPE_CHECKING:
    from monai.losses import DiceCELoss

SHARPNESS = 0.5
"""The temperature T of ``sharpen``."""


def sharpen(belief: torch.Tensor, temperature: float) -> torch.Tensor:
    """p_c^(1/T) / sum over classes k of p_k^(1/T), for probabilities [B, classes, H, W]."""
    powers = belief ** (1.0 / temperature)
    return powers / powers.sum(dim=1, keepdim=True)


def agreement(
    online: nn.Module,
    target: nn.Module,
    images: torch.Tensor,
    generator: torch.Generator,
    sharpness: float = SHARPNESS,
) -> torch.Tensor:
    """Cross entropy and Dice loss of the online network on augmented images, with the target's sharpened belief about
    the original images as truth."""
    with torch.no_grad():  # in training mode: BatchNorm uses the batch's statistics and updates the target's own
        belief = sharpen(target(images).softmax(dim=1), sharpness)
    views, structures = augment_maps(images, belief[:, 1:], generator)
    background = 1.0 - structures.sum(dim=1, keepdim=True)  # includes the area outside the image
    return _criterion()(online(views), torch.cat([background, structures], dim=1))


@cache
def _criterion() -> "DiceCELoss":
    from monai.losses import DiceCELoss

    return DiceCELoss(softmax=True)


class MeanTeacher(SegmentationMethod):
    """Online (student) and target (teacher). ``anchor`` weighs the phantom loss; 0 leaves it out."""

    has_target = True

    def __init__(
        self,
        preset: Preset,
        anatomy: Anatomy,
        anchor: float = 1.0,
        sharpness: float = SHARPNESS,
        *,
        encoder: EncoderFactory = Encoder,
    ):
        super().__init__(preset, anatomy, encoder=encoder)
        self.target = frozen_copy(self.online)
        self.anchor, self.sharpness = anchor, sharpness

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        loss = agreement(self.online, self.target, batch.images, generator, self.sharpness)
        return loss + self.anchor * self.phantom_loss(generator) if self.anchor else loss

    def after_step(self) -> None:
        move_average(self.target, self.online, self.preset.pretraining.ema_momentum)
