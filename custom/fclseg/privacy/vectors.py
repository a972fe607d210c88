"""The features that leave a site instead of its bank, computed from its images with all active protections.

They come from the network *as it was received*, in evaluation mode. A vector therefore depends only on its images and
on a network that the other parties know. The accounting of the noise relies on this. Random choices come from the
operating system, because the server knows the run's seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fclseg.data.augment import Views
from fclseg.data.sampler import Batch, SliceSampler
from fclseg.privacy.features import add_noise, group_means, group_of_each, sensitivity
from fclseg.privacy.mixing import mix_images, mixing_weights, random_members, random_signs
from fclseg.privacy.perturbation import gradient_norms, remove_revealing
from fclseg.privacy.protections import PrivacySettings


@dataclass(frozen=True)
class SharedVectors:
    """What leaves, and what only the site knows about it."""

    features: torch.Tensor  # [n, D], unit length
    partitions: torch.Tensor  # [n], uint8
    sensitivity: float  # sensitivity of the vectors before the noise
    rows: np.ndarray  # [K]: the slice with the largest weight in each feature
    views: torch.Tensor  # [K, 1, v, v]: its view, before it was mixed
    groups: torch.Tensor  # [K]: the vector that includes the feature


class VectorMaker:
    """Makes the vectors of one site with one network."""

    def __init__(
        self,
        network: nn.Module,
        sampler: SliceSampler,
        views: Views,
        settings: PrivacySettings,
        public: torch.Tensor,
        draws: torch.Generator,
        noise: np.random.Generator,
    ):
        self.network, self.sampler, self.views, self.settings = network.eval(), sampler, views, settings
        self.public, self.draws, self.noise = public, draws, noise
        store = sampler.store
        names = [volume.patient for volume in store.volumes]
        self._patients = np.unique(names, return_inverse=True)[1][store.volume]

    def make(self, count: int) -> SharedVectors:
        """Vectors of ``count`` views of the site's slices, over as many epochs as needed."""
        parts = list(self._parts(count))
        features, partitions, views = (torch.cat([part[i] for part in parts])[:count] for i in range(3))
        owners, rows = (np.concatenate([part[i] for part in parts])[:count] for i in (3, 4))
        groups = torch.arange(len(features))
        if self.settings.prototypes is not None:
            groups = group_of_each(partitions.cpu(), self.settings.prototypes)
        reach = sensitivity(owners, groups.numpy())
        first = torch.from_numpy(np.unique(groups.numpy(), return_index=True)[1]).to(partitions.device)
        vectors = group_means(features, groups.to(features.device))
        if self.settings.feature_noise:
            vectors = add_noise(vectors, self.settings.feature_noise, self.noise)
        vectors = functional.normalize(vectors, dim=1)
        return SharedVectors(vectors, partitions[first].to(torch.uint8), reach, rows, views, groups)

    def _parts(self, count: int) -> Iterator[tuple[Any, ...]]:
        made = 0
        while made < count:
            for batch in self.sampler.epoch(self.draws):
                yield self._part(batch)
                made += len(batch.images)
                if made >= count:
                    return

    @torch.no_grad()
    def _part(self, batch: Batch) -> tuple[Any, ...]:
        """Unit features, partitions, views, patients and rows of one batch."""
        assert batch.rows is not None, "a sampler says which slices it drew"
        views = self.views(batch.images, self.draws)
        seen, members = self._mixed(views) if self.settings.mix > 1 else (views, torch.arange(len(views))[:, None])
        features = self.network(seen)
        if self.settings.perturb:
            norms = gradient_norms(self.network, seen, self.draws)
            features = remove_revealing(features, norms, self.settings.perturb)
        owners = self._patients[batch.rows][members.numpy()]
        return functional.normalize(features, dim=1), batch.partitions, views, owners, batch.rows

    def _mixed(self, views: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count, device = len(views), views.device
        own, public = random_members(count, self.settings.mix, len(self.public), self.draws)
        chosen = self.views(self.public.to(device)[public.flatten()], self.draws)
        chosen = chosen.reshape(*public.shape, *chosen.shape[2:])
        weights = mixing_weights(count, self.settings.mix, self.draws)
        signs = random_signs(views.shape, self.draws).to(views)
        return mix_images(views[own, 0], chosen, weights, signs), own
