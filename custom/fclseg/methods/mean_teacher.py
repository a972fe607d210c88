"""Mean teacher (Tarvainen and Valpola 2017): the target segments unlabelled slices, the online network learns from it.

The target sees the original slice, and the online network an augmented one. The target's prediction is transformed with
the image. On their own, the two networks would confirm each other's mistakes. Phantom slices with their true labels in
every step prevent that. Boxes are exchanged between slices (CutMix, Yun et al. 2019), and between patients and phantoms
in both directions (Bai et al. 2023, "Bidirectional copy-paste"), so that both kinds of images are learnt as one. Online
and target are whole U-Nets with the same roles as in FCLOpt, so PTNU and DP apply unchanged.
"""

import torch
from torch import nn
from torch.nn import functional

from fclseg.anatomy.base import Anatomy
from fclseg.data.augment import RANGES, Ranges, augment_maps, labelled_ranges
from fclseg.data.sampler import Batch
from fclseg.methods.base import frozen_copy, move_average
from fclseg.methods.labelled_loss import soft_dice
from fclseg.methods.segmenter import SegmentationMethod
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.statistics import statistics_kept
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset

SHARPNESS = 0.5
"""The temperature T of ``sharpen``."""

MIXED = 0.5
"""Fraction of the slices with a box of another one. Without boxes half of the gain is lost (four hospitals)."""

DICE_WEIGHT = 0.5
"""Of soft Dice beside cross entropy. It enlarges uncertain structures, and a teacher passes that on."""

BOX_AREA = (0.2, 0.55)
"""Of the slice."""

Labelled = tuple[torch.Tensor, torch.Tensor]
"""Images [B, 1, H, W] and the truth about them [B, classes, H, W]."""


def sharpen(belief: torch.Tensor, temperature: float) -> torch.Tensor:
    """p_c^(1/T) / sum over classes k of p_k^(1/T), for probabilities [B, classes, H, W]."""
    powers = belief ** (1.0 / temperature)
    return powers / powers.sum(dim=1, keepdim=True)


def strong_views(
    target: nn.Module,
    images: torch.Tensor,
    generator: torch.Generator,
    sharpness: float,
    mixed: float,
    ranges: Ranges = RANGES,
) -> Labelled:
    """Augmented images, and the target's sharpened belief about the original images [B, classes, H, W], moved along.

    A fraction ``mixed`` of the images shows another image of the batch inside a box.
    """
    with torch.no_grad():  # in training mode: BatchNorm uses the batch's statistics and updates the target's own
        belief = sharpen(target(images).softmax(dim=1), sharpness)
    views, structures = augment_maps(images, belief[:, 1:], generator, ranges)
    background = 1.0 - structures.sum(dim=1, keepdim=True)  # includes the area outside the image
    whole = (views, torch.cat([background, structures], dim=1))
    if not mixed:
        return whole
    others = torch.randperm(len(images), generator=generator, device=generator.device).to(images.device)
    return pasted(boxes(images, mixed, generator), (whole[0][others], whole[1][others]), whole)


def agreement(
    online: nn.Module,
    target: nn.Module,
    images: torch.Tensor,
    generator: torch.Generator,
    sharpness: float = SHARPNESS,
    mixed: float = MIXED,
    ranges: Ranges = RANGES,
) -> torch.Tensor:
    """The loss of the online network on ``strong_views`` of unlabelled images."""
    return _loss(online, strong_views(target, images, generator, sharpness, mixed, ranges))


def boxes(images: torch.Tensor, fraction: float, generator: torch.Generator) -> torch.Tensor:
    """Masks [B, 1, H, W]: a square of random size and place in this fraction of the images, nothing in the others."""
    height, width = images.shape[2:]
    u = torch.rand(4, len(images), generator=generator, device=generator.device).to(images.device)[:, :, None, None]
    side = (BOX_AREA[0] + (BOX_AREA[1] - BOX_AREA[0]) * u[0]).sqrt()
    rows, columns = (torch.arange(n, device=images.device)[None] + 0.5 for n in (height, width))
    places = [(1 - side) * u[axis] for axis in (1, 2)]
    inside = [
        (place <= along / n) & (along / n < place + side)
        for place, along, n in zip(places, (rows[..., None], columns[:, None]), (height, width), strict=True)
    ]
    return (inside[0] & inside[1] & (u[3] < fraction))[:, None]


def pasted(mask: torch.Tensor, source: Labelled, onto: Labelled) -> Labelled:
    """``source`` inside the mask and ``onto`` outside of it, images and truth alike."""
    return torch.where(mask, source[0], onto[0]), torch.where(mask, source[1], onto[1])


def _loss(online: nn.Module, labelled: Labelled) -> torch.Tensor:
    """Cross entropy, and soft Dice over the batch."""
    images, truth = labelled
    scores = online(images)
    return functional.cross_entropy(scores, truth) + DICE_WEIGHT * soft_dice(scores, truth)


class MeanTeacher(SegmentationMethod):
    """Online (student) and target (teacher). ``anchor`` weighs the phantom loss; 0 leaves it out."""

    has_target = True

    def __init__(
        self,
        preset: Preset,
        anatomy: Anatomy,
        anchor: float = 1.0,
        sharpness: float = SHARPNESS,
        mixed: float = MIXED,
        *,
        encoder: EncoderFactory = Encoder,
    ):
        super().__init__(preset, anatomy, encoder=encoder)
        self.target = frozen_copy(self.online)
        self.anchor, self.sharpness, self.mixed = anchor, sharpness, mixed

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        ranges = labelled_ranges(self.preset.images)
        patients = strong_views(self.target, batch.images, generator, self.sharpness, self.mixed, ranges)
        if not self.anchor:
            return _loss(self.online, patients)
        phantoms = self._phantoms(len(batch.images), generator)
        mask = boxes(batch.images, self.mixed / 2, generator)
        patients, phantoms = pasted(mask, phantoms, patients), pasted(mask, patients, phantoms)
        loss = _loss(self.online, patients)
        with statistics_kept(self.online):
            return loss + self.anchor * _loss(self.online, phantoms)

    def _phantoms(self, count: int, generator: torch.Generator) -> Labelled:
        """As many augmented phantom slices as there are patients' slices in a batch, with their true classes."""
        images, labels = (part[:count] for part in self.phantom_batch(generator))
        truth = functional.one_hot(labels[:, 0].long(), self.anatomy.classes).movedim(-1, 1)
        return images, truth.to(images.dtype)

    def after_step(self) -> None:
        move_average(self.target, self.online, self.preset.pretraining.ema_momentum)
