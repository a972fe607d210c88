"""SwAV (Caron et al. 2020): the prototype that one view is assigned to is predicted from the other view."""

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

SHARPNESS = 0.05
"""epsilon of the entropic assignment: lower is closer to one prototype per image."""
ITERATIONS = 3
"""Sinkhorn iterations, as in the SwAV paper."""


@torch.no_grad()
def sinkhorn(scores: torch.Tensor, sharpness: float = SHARPNESS, iterations: int = ITERATIONS) -> torch.Tensor:
    """Soft assignments [B, C] of B images to C prototypes that use every prototype equally often.

    Alternately scales the columns of exp(scores / epsilon) to sum 1/C and its rows to sum 1/B; the result's rows are
    multiplied by B so that each is a distribution over prototypes. Computed in the log domain to avoid overflow.
    """
    log = scores.float() / sharpness
    for _ in range(iterations):
        log = log - log.logsumexp(dim=0, keepdim=True)
        log = log - log.logsumexp(dim=1, keepdim=True)
    return log.exp()


class SwAV(Method):
    """Encoder network and prototypes, both trained and both federated.

    The number of prototypes is at most the number of images in a batch by default, so that one batch can be spread
    over all of them and no queue of earlier features is needed.
    """

    learning_rates: ClassVar[Mapping[str, float]] = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3}

    def __init__(self, preset: Preset, prototypes: int | None = None, *, encoder: EncoderFactory = Encoder):
        super().__init__(preset, encoder=encoder)
        self.prototypes = nn.Linear(
            preset.networks.feature_size, prototypes or preset.pretraining.batch_size, bias=False
        )

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """Cosine of features [B, D] with every prototype [B, C]; normalised here, since averaging shortens them."""
        prototypes = functional.normalize(self.prototypes.weight, dim=1)
        return functional.normalize(features, dim=1) @ prototypes.T

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        views = torch.cat([self.views(batch.images, generator), self.views(batch.images, generator)])
        first, second = self.scores(self.online(views)).chunk(2)
        return 0.5 * (self._swapped(first, second) + self._swapped(second, first))

    def _swapped(self, predicting: torch.Tensor, assigning: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of one view's prediction against the other view's assignment."""
        return functional.cross_entropy(predicting / self.preset.pretraining.temperature, sinkhorn(assigning))
