"""BYOL, the base of FCLOpt, FedBYOL and FedU: an online network predicts the output of a slowly moving target.

The paper's Eq. (byol_cl_loss) and Eq. (byol_ema). There are no negatives, so no features need to leave a site.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch.nn import functional

from fclseg.data.sampler import Batch
from fclseg.methods.base import Method, frozen_copy, move_average
from fclseg.methods.positives import positive_images
from fclseg.networks.heads import mlp
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset


def byol_loss(online: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean over the batch of 2 - 2 cos(z, z'), with z, z' of shape [B, D] (Eq. byol_cl_loss)."""
    return 2.0 - 2.0 * functional.cosine_similarity(online, target, dim=1).mean()


class BYOL(Method):
    """Online encoder and projector, predictor, and the target: a moving average of the online network."""

    has_target = True
    learning_rates: ClassVar[Mapping[str, float]] = {"sgd": 0.5, "adam": 1e-3, "adamw": 1e-3}

    def __init__(self, preset: Preset, *, encoder: EncoderFactory = Encoder):
        super().__init__(preset, encoder=encoder)
        self.predictor = mlp(preset.networks.feature_size, preset.networks.hidden, preset.networks.feature_size)
        self.target = frozen_copy(self.online)
        self.wants_partners = preset.pretraining.structural_positives > 0

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        """Symmetrised: each view goes through both networks once, and the two directions are averaged."""
        first = self.views(batch.images, generator)
        second = self.views(positive_images(batch, self.preset.pretraining.structural_positives, generator), generator)
        with torch.no_grad():  # in training mode: its BatchNorm uses batch statistics, like the online network's
            target_first, target_second = self.target(first), self.target(second)
        online_first, online_second = self.predictor(self.online(first)), self.predictor(self.online(second))
        return 0.5 * (byol_loss(online_first, target_second) + byol_loss(online_second, target_first))

    def after_step(self) -> None:
        move_average(self.target, self.online, self.preset.pretraining.ema_momentum)
