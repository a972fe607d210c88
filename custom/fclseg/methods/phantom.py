"""Supervised training on phantoms: a segmentation network that has never seen a patient's labels.

The site's own images are used only for the BatchNorm statistics, which adapt the network to the site's scanners
(Li et al. 2018, "Adaptive batch normalization").
"""

from collections.abc import Mapping
from typing import ClassVar

import torch

from fclseg.data.sampler import Batch
from fclseg.methods.segmenter import SegmentationMethod


class Phantom(SegmentationMethod):
    """One batch of phantom slices per batch of the site's slices."""

    learning_rates: ClassVar[Mapping[str, float]] = {"sgd": 0.05, "adam": 2e-3, "adamw": 2e-3}

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        with torch.no_grad():
            self.online(batch.images)
        return self.phantom_loss(generator)
