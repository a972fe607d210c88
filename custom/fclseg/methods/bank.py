"""The memory bank of features that contrastive methods compare against, and the banks that other sites shared.

``MemoryBank`` is Q_{l,c} of Eq. (shared_negatives), the K newest features of the site's own images; ``RemoteBanks`` is
the rest of Q. Both consist of buffers only, so they are part of the site's state.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fclseg.data.sampler import SliceSampler
from fclseg.errors import FCLSegError


class MemoryBank(nn.Module):
    """A ring buffer of K unit features [K, D] with the partition [K] of the slice each comes from."""

    features: torch.Tensor
    partitions: torch.Tensor
    pointer: torch.Tensor
    filled: torch.Tensor

    def __init__(self, size: int, feature_size: int):
        super().__init__()
        self.register_buffer("features", torch.zeros(size, feature_size))
        self.register_buffer("partitions", torch.zeros(size, dtype=torch.uint8))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))  # where the next feature goes: the oldest
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        return int(self.filled)

    @property
    def size(self) -> int:
        """K."""
        return len(self.features)

    @torch.no_grad()
    def push(self, features: torch.Tensor, partitions: torch.Tensor) -> None:
        """Overwrite the oldest entries; of a batch larger than the bank, only the last K features are kept."""
        features, partitions = features[-self.size :], partitions[-self.size :]
        places = (self.pointer + torch.arange(len(features), device=self.pointer.device)) % self.size
        self.features[places] = functional.normalize(features, dim=1).to(self.features.dtype)
        self.partitions[places] = partitions.to(self.partitions.dtype)
        self.pointer.copy_((self.pointer + len(features)) % self.size)
        self.filled.copy_((self.filled + len(features)).clamp(max=self.size))

    def fill(
        self,
        sampler: SliceSampler,
        encode: Callable[[torch.Tensor, torch.Generator], torch.Tensor],
        generator: torch.Generator,
        most_views: int = 0,
    ) -> None:
        """Replace all K entries with features of the site's own images, using as many epochs of views as needed.

        ``most_views`` limits how often an image is encoded. The features are then repeated until the bank is full.
        Every feature has the same weight, as in a smaller bank, and a site with few images does not spend the whole
        round on refilling it.
        """
        pushed, epochs = 0, 0
        while pushed < self.size and not 0 < most_views <= epochs:
            for batch in sampler.epoch(generator):
                self.push(encode(batch.images, generator), batch.partitions)
                pushed += len(batch.images)
                if pushed >= self.size:
                    break
            epochs += 1
        if pushed < self.size:
            fresh = (self.pointer - pushed + torch.arange(pushed, device=self.pointer.device)) % self.size
            again = fresh.repeat(self.size // pushed)[: self.size - pushed]
            self.push(self.features[again], self.partitions[again])

    def entries(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The features and partitions that have been filled in, in no particular order."""
        return self.features[: len(self)], self.partitions[: len(self)]

    def shared(self) -> dict[str, torch.Tensor]:
        """What leaves the site: features and partition ids, without the ring's bookkeeping."""
        return {"features": self.features, "partitions": self.partitions}


class RemoteBanks(nn.Module):
    """The banks of the other sites, concatenated; their number may change from round to round."""

    features: torch.Tensor
    partitions: torch.Tensor

    def __init__(self, feature_size: int):
        super().__init__()
        self.register_buffer("features", torch.zeros(0, feature_size))
        self.register_buffer("partitions", torch.zeros(0, dtype=torch.uint8))

    def replace(self, states: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Replace the previous banks with those of the other sites (``MemoryBank.shared`` by site).

        Sites are sorted so that the order of answers does not change the result. Features are normalised again, because
        a filter may have added noise to them or rounded them.
        """
        for site, state in states.items():
            features, partitions = state["features"], state["partitions"]
            if features.shape != (len(partitions), self.features.shape[1]) or not features.isfinite().all():
                raise FCLSegError(
                    f"the bank of {site} is not a finite [n, {self.features.shape[1]}] array with n partitions: "
                    "run every site with the same preset"
                )
        banks = [states[site] for site in sorted(states)]
        unit = [functional.normalize(bank["features"].to(self.features), dim=1) for bank in banks]
        self.features = torch.cat([self.features[:0], *unit])
        self.partitions = torch.cat([self.partitions[:0], *(bank["partitions"].to(self.partitions) for bank in banks)])

    def entries(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.features, self.partitions

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        """Resize the buffers to the stored state; otherwise PyTorch would report a size mismatch."""
        for name in ("features", "partitions"):
            if (stored := state_dict.get(prefix + name)) is not None:
                buffer = getattr(self, name)
                setattr(self, name, buffer.new_zeros((len(stored), *buffer.shape[1:])))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
