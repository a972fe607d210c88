"""SimCLR (Chen et al. 2020): every other image of the batch is a negative."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch.nn import functional

from fclseg.data.sampler import Batch
from fclseg.methods.base import Method
from fclseg.methods.infonce import contrastive_loss


def nt_xent(
    first: torch.Tensor, second: torch.Tensor, temperature: float, dictionary: torch.Tensor | None = None
) -> torch.Tensor:
    """NT-Xent of two views' features [B, D] each, averaged over the 2B features as queries.

    The positive of a query is the other view of its image; negatives are the 2B - 2 features of other images and the
    entries of ``dictionary`` [M, D], if given (unit length).
    """
    features = functional.normalize(torch.cat([first, second]), dim=1)
    count = len(features)
    scores = features @ features.T / temperature
    partner = torch.arange(count, device=features.device).roll(len(first))[:, None]
    others = ~torch.eye(count, dtype=torch.bool, device=features.device).scatter(1, partner, True)
    positives, negatives = scores.gather(1, partner), scores
    if dictionary is not None and len(dictionary):
        negatives = torch.cat([scores, features @ dictionary.T / temperature], dim=1)
        others = functional.pad(others, (0, len(dictionary)), value=True)
    return contrastive_loss(positives, negatives, negative_mask=others).mean()


class SimCLR(Method):
    """Two views of each image go through the same network."""

    learning_rates: ClassVar[Mapping[str, float]] = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3}

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        first, second = self.two_views(batch.images, generator)
        return nt_xent(first, second, self.preset.pretraining.temperature)

    def two_views(self, images: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Features of two random views, in one pass, so that both share their BatchNorm statistics."""
        views = torch.cat([self.views(images, generator), self.views(images, generator)])
        first, second = self.online(views).chunk(2)
        return first, second
