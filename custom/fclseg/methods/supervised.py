"""Supervised training of the whole U-Net: the method behind federated fine-tuning (``jobs/finetune_federated``).

The online component is the segmentation network itself, so FedAvg of ``online`` is the paper's supervised federated
learning. Loss, augmentation and encoder freezing are the same as in the bundles.
"""

from collections.abc import Iterable

import torch
from torch import nn

from fclseg.anatomy.base import Anatomy
from fclseg.data.augment import augment_labelled, labelled_ranges
from fclseg.data.sampler import Batch, SliceSampler
from fclseg.methods.segmenter import SegmentationMethod
from fclseg.networks.freezable import measure_statistics
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset
from fclseg.randomness import generator as new_generator


class Supervised(SegmentationMethod):
    """Trains on the site's labelled slices. Rounds within the first ``frozen_epochs`` keep the encoder frozen.

    The encoder's learning rate is ``encoder_lr_factor`` times the decoder's. The optimiser has a single rate, so the
    encoder's step is scaled afterwards; for Adam without weight decay this is equivalent.
    """

    wants_labels = True

    def __init__(self, preset: Preset, anatomy: Anatomy, *, encoder: EncoderFactory = Encoder):
        super().__init__(preset, anatomy, encoder=encoder)
        self._before: list[torch.Tensor] | None = None

    @property
    def optimizer_name(self) -> str:
        return "adam"

    @property
    def learning_rate(self) -> float:
        return self.preset.finetuning.lr

    def local_epochs(self, sampler: SliceSampler) -> int:
        """As many steps as in local fine-tuning. Only the site knows how many labels it has: the server plans for one
        step per epoch (``engine/job_defaults.py``)."""
        planned, finetuning = super().local_epochs(sampler), self.preset.finetuning
        if finetuning.steps is None:
            return planned
        epochs = finetuning.epochs_for(sampler.steps_per_epoch)
        return min(planned, max(1, round(epochs / self.preset.pretraining.rounds)))

    def trainable(self) -> Iterable[nn.Parameter]:
        """Always all parameters: optimiser state is stored by position, and a frozen encoder just has no gradients."""
        return self.online.parameters()

    def begin_round(self, sampler: SliceSampler, round_number: int, generator: torch.Generator) -> None:
        frozen = (round_number + 1) * self.preset.pretraining.local_epochs <= self.preset.finetuning.frozen_epochs
        if frozen:
            batches = sampler.epoch(new_generator(0, "statistics"))
            measure_statistics(self.online, (batch.images for batch in batches))
        self.online.freeze(frozen)
        self.train()

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        if self.preset.finetuning.encoder_lr_factor != 1.0 and not self.online.frozen:
            self._before = [parameter.detach().clone() for parameter in self.online.encoder.parameters()]
        ranges = labelled_ranges(self.preset.images)
        images, labels = augment_labelled(batch.images, batch.label_maps, generator, ranges)
        return self.criterion(self.online(images), labels)

    @torch.no_grad()
    def after_step(self) -> None:
        if self._before is None:
            return
        for parameter, before in zip(self.online.encoder.parameters(), self._before, strict=True):
            parameter.copy_(torch.lerp(before, parameter, self.preset.finetuning.encoder_lr_factor))
        self._before = None
