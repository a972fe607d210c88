"""Motion as a label: the whole U-Net predicts where the image changes during the heart cycle.

The target of a slice is the range of its grey values over the frames of its patient (|ED - ES| if there are two),
smoothed, relative to the volume's 99th percentile. The heart is what moves, so the network learns to find it.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch.nn import functional

from fclseg.data.augment import augment_maps
from fclseg.data.sampler import Batch, SliceSampler
from fclseg.data.slices import SliceStore
from fclseg.errors import DataError
from fclseg.methods.base import Method
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset

if TYPE_CHECKING:
    from monai.losses import DiceLoss


def motion_maps(store: SliceStore) -> np.ndarray:
    """Maps in [0, 1] for all slices of a store [n, H, W]; patients with a single frame have none (NaN)."""
    from scipy.ndimage import gaussian_filter

    maps = np.full(store.images.shape, np.nan, dtype=np.float32)
    frames = defaultdict(list)
    for volume in store.volumes:
        frames[volume.patient, volume.stop - volume.start].append(slice(volume.start, volume.stop))
    for places in frames.values():
        if len(places) > 1:
            cycle = np.stack([np.asarray(store.images[place], dtype=np.float32) for place in places])
            spread = gaussian_filter(np.ptp(cycle, axis=0), sigma=(0, 1, 1))
            for place in places:
                maps[place] = np.clip(spread / max(np.percentile(spread, 99), 1e-6), 0, 1)
    return maps


class Motion(Method):
    """A U-Net with one output channel; loss = binary cross-entropy + soft Dice."""

    whole_network = True
    learning_rates: ClassVar[Mapping[str, float]] = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3}

    online: FreezableUNet  # type: ignore[assignment]  # the whole network takes the place of encoder and projector

    def __init__(self, preset: Preset, *, encoder: EncoderFactory = Encoder):
        super().__init__(preset, encoder=encoder)
        self.online = FreezableUNet(preset.networks.channels, 1, torch.initial_seed(), encoder, preset.networks.patch)
        self._maps: tuple[SliceStore, np.ndarray] | None = None

    @cached_property
    def overlap(self) -> "DiceLoss":
        from monai.losses import DiceLoss  # takes seconds to import, and counting bytes or averaging does not need it

        return DiceLoss(sigmoid=True)

    def begin_round(self, sampler: SliceSampler, round_number: int, generator: torch.Generator) -> None:
        if self._maps is None or self._maps[0] is not sampler.store:
            self._maps = sampler.store, motion_maps(sampler.store)
        if np.isnan(self._maps[1][sampler.indices]).all():
            raise DataError("no patient has two frames of the heart cycle: motion needs at least ED and ES")

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        assert self._maps is not None, "call begin_round before the first step"
        maps = torch.from_numpy(self._maps[1][batch.rows])[:, None].to(batch.images)
        seen = ~maps.isnan().flatten(1).any(dim=1)
        images, moved = augment_maps(batch.images, maps.nan_to_num(), generator)
        scores = self.online(images)
        if not seen.any():
            return 0.0 * scores.sum()
        scores, moved = scores[seen], moved[seen]
        return functional.binary_cross_entropy_with_logits(scores, moved) + self.overlap(scores, moved)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        return self.online.encoder(images)[-1].mean(dim=(2, 3))
