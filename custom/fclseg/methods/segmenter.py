"""Methods whose online network is the whole segmentation network, not an encoder with a projector."""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import torch

from fclseg.anatomy.base import Anatomy
from fclseg.data.augment import augment_labelled, labelled_ranges
from fclseg.data.sampler import SliceSampler
from fclseg.methods.base import Method
from fclseg.methods.labelled_loss import LabelledLoss
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.statistics import statistics_kept
from fclseg.networks.unet import Encoder
from fclseg.phantom.slices import phantom_slices
from fclseg.presets import Preset


class SegmentationMethod(Method):
    """A U-Net for the structures of ``anatomy``, with the bundles' loss."""

    whole_network = True
    segments = True
    learning_rates: ClassVar[Mapping[str, float]] = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3}

    online: FreezableUNet  # type: ignore[assignment]  # the whole network takes the place of encoder and projector

    def __init__(self, preset: Preset, anatomy: Anatomy, *, encoder: EncoderFactory = Encoder):
        super().__init__(preset, encoder=encoder)
        self.anatomy = anatomy
        seed = torch.initial_seed()
        self.online = FreezableUNet(preset.networks.channels, anatomy.classes, seed, encoder, preset.networks.patch)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        return self.online.encoder(images)[-1].mean(dim=(2, 3))

    @cached_property
    def criterion(self) -> LabelledLoss:
        return LabelledLoss()  # when it is needed: its import takes seconds, and counting bytes does not need it

    @cached_property
    def phantoms(self) -> SliceSampler:
        """Labelled slices without patients. Every site generates the same ones itself."""
        pretraining = self.preset.pretraining
        store = phantom_slices(self.anatomy, self.preset.images, pretraining.phantom_patients)
        device = next(self.parameters()).device
        return SliceSampler(store, store.select(), pretraining.batch_size, labels=True, device=device)

    def phantom_batch(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Augmented phantom slices [B, 1, H, W] and their classes."""
        batch = self.phantoms.draw(generator)
        return augment_labelled(batch.images, batch.label_maps, generator, labelled_ranges(self.preset.images))

    def phantom_loss(self, generator: torch.Generator) -> torch.Tensor:
        """The supervised loss of one random batch of phantom slices. BatchNorm keeps the patients' statistics."""
        images, labels = self.phantom_batch(generator)
        with statistics_kept(self.online):
            return self.criterion(self.online(images), labels)
