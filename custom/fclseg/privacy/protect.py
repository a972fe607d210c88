"""Applies protections to what a site is about to send, at the site, after training."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch

from fclseg.data.sampler import SliceSampler
from fclseg.errors import PublicError
from fclseg.federation.states import Arrays, to_arrays, to_tensors
from fclseg.methods.base import Method
from fclseg.methods.fedca import public_images
from fclseg.presets import Preset
from fclseg.privacy.accountant import UPDATE_SENSITIVITY
from fclseg.privacy.protections import NETWORKS, PrivacySettings
from fclseg.privacy.update_noise import clip_and_noise
from fclseg.privacy.vectors import SharedVectors, VectorMaker


class Sender(Protocol):
    """A site with its method and its images."""

    @property
    def name(self) -> str: ...
    @property
    def method(self) -> Method: ...
    @property
    def sampler(self) -> SliceSampler: ...


@dataclass
class Upload:
    """What a site sends in one round."""

    components: dict[str, Arrays]  # networks
    features: dict[str, Arrays]
    multipliers: dict[str, float] = field(default_factory=dict)  # noise multipliers of everything that has noise


def protect(
    sender: Sender,
    upload: Upload,
    received: Mapping[str, Arrays],
    settings: PrivacySettings,
    seed: int | None = None,
    share: float = 1.0,
) -> Upload:
    """The upload with these protections. ``received`` are the networks that came down in this round. ``seed`` of the
    noise: a secret of the site; None takes one from the operating system. Never the run's, which the server knows.
    ``share`` is the site's part of the noise on networks; the multiplier is that of the whole noise."""
    made = Upload(dict(upload.components), dict(upload.features))
    if settings.on_features:
        for name in upload.features:
            vectors = protected_vectors(sender, name, received, settings, seed)
            made.features[name] = to_arrays({"features": vectors.features, "partitions": vectors.partitions})
            if settings.feature_noise:
                made.multipliers[name] = settings.feature_noise / vectors.sensitivity
    if settings.clip is not None and upload.components:
        if unknown := sorted(set(upload.components) - set(received)):
            raise PublicError(
                f"{sender.name}: component '{unknown[0]}' was not received in this round, so there is no update to "
                "clip: the result is not sent"
            )
        noise = np.random.default_rng(seed)
        made.components = clip_and_noise(upload.components, received, settings.clip, settings.sigma, noise, share)
        if settings.sigma:
            made.multipliers[NETWORKS] = settings.sigma / UPDATE_SENSITIVITY
    return made


def protected_vectors(
    sender: Sender, component: str, received: Mapping[str, Arrays], settings: PrivacySettings, seed: int | None = None
) -> SharedVectors:
    """What leaves instead of the site's bank: the same number of features, or their prototypes."""
    method = sender.method
    source = method.feature_networks.get(component)
    if source is None or source not in received:
        raise PublicError(
            f"{sender.name}: no network came down to recompute '{component}' with, so it cannot be "
            "protected: the result is not sent"
        )
    network = deepcopy(method.get_submodule(source))
    network.load_state_dict(to_tensors(received[source]))
    draws = torch.Generator()
    draws.seed() if seed is None else draws.manual_seed(seed % 2**63)
    public = _public(method.preset) if settings.mix > 1 else torch.zeros(0)
    maker = VectorMaker(network, sender.sampler, method.views, settings, public, draws, np.random.default_rng(seed))
    return maker.make(method.preset.pretraining.bank_size)


@lru_cache(maxsize=1)
def _public(preset: Preset) -> torch.Tensor:
    """The same phantom images in every round."""
    return public_images(preset)
