"""MoCo (He et al. 2020): a momentum (target) network and a memory bank of its features as negatives."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch.nn import functional

from fclseg.data.sampler import Batch, SliceSampler
from fclseg.errors import FCLSegError
from fclseg.methods.bank import MemoryBank
from fclseg.methods.base import Method, frozen_copy, move_average
from fclseg.methods.infonce import contrastive_loss
from fclseg.methods.positives import positive_images
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset


class MoCo(Method):
    """The positive of a query is the target's feature of another view of the image (or of its partner, see
    ``positives``); negatives are the bank.

    ``refill_each_round`` fills the bank from the current target at the start of every round. Without it, the bank's
    features come from a network that federated averaging has since replaced, and training can drift to chance level.
    """

    has_target = True
    learning_rates: ClassVar[Mapping[str, float]] = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3}

    def __init__(self, preset: Preset, refill_each_round: bool = True, *, encoder: EncoderFactory = Encoder):
        super().__init__(preset, encoder=encoder)
        self.target = frozen_copy(self.online)
        self.bank = MemoryBank(preset.pretraining.bank_size, preset.networks.feature_size)
        self.wants_partners = preset.pretraining.structural_positives > 0
        self.refill_each_round = refill_each_round
        self._fresh: tuple[torch.Tensor, torch.Tensor]  # keys and partitions of the current step

    def queries(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """q: unit features [B, D] of one random view of each image, from the online network."""
        return functional.normalize(self.online(self.views(images, generator)), dim=1)

    @torch.no_grad()
    def keys(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """k+: the same from the target network, without gradients."""
        return functional.normalize(self.target(self.views(images, generator)), dim=1)

    def begin_round(self, sampler: SliceSampler, round_number: int, generator: torch.Generator) -> None:
        if self.refill_each_round or len(self.bank) < self.bank.size:
            self.bank.fill(sampler, self.keys, generator, self.preset.pretraining.bank_views)

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        compared = positive_images(batch, self.preset.pretraining.structural_positives, generator)
        queries, keys = self.queries(batch.images, generator), self.keys(compared, generator)
        self._fresh = keys, batch.partitions
        positives = (queries * keys).sum(dim=1, keepdim=True)
        negatives = queries @ self.own_entries()[0].T
        temperature = self.preset.pretraining.temperature
        return contrastive_loss(positives / temperature, negatives / temperature).mean()

    def own_entries(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The bank's features and partitions. An empty bank would make every loss zero, and nothing would be learnt."""
        if not len(self.bank):
            raise FCLSegError("the memory bank is empty, so there are no negatives: call begin_round before loss")
        return self.bank.entries()

    def after_step(self) -> None:
        move_average(self.target, self.online, self.preset.pretraining.ema_momentum)
        self.bank.push(*self._fresh)
