"""Applies the protections of a job and of a site's policy to a result, at the site, before anything leaves."""

from copy import deepcopy
from functools import lru_cache

import numpy as np
import torch

from fclseg.errors import PublicError
from fclseg.federation.states import Arrays, to_arrays, to_tensors
from fclseg.flare.messages import Message
from fclseg.flare.site import Site
from fclseg.methods.fedca import public_images
from fclseg.presets import Preset
from fclseg.privacy.accountant import UPDATE_SENSITIVITY
from fclseg.privacy.settings import NETWORKS, PrivacySettings
from fclseg.privacy.update_noise import clip_and_noise
from fclseg.privacy.vectors import SharedVectors, VectorMaker


def protect(site: Site, answer: Message, received: dict[str, Arrays], settings: PrivacySettings) -> dict[str, float]:
    """Change the answer in place. Returns the noise multipliers of everything that now has noise."""
    multipliers = {}
    if settings.on_features:
        for name, states in answer.others.items():
            vectors = protected_vectors(site, name, received, settings)
            states[site.place.name] = to_arrays({"features": vectors.features, "partitions": vectors.partitions})
            if settings.feature_noise:
                multipliers[name] = settings.feature_noise / vectors.sensitivity
    if settings.clip is not None and answer.components:
        noise = np.random.default_rng()  # from the operating system, because the server knows the run's seed
        answer.components = clip_and_noise(answer.components, received, settings.clip, settings.sigma, noise)
        if settings.sigma:
            multipliers[NETWORKS] = settings.sigma / UPDATE_SENSITIVITY
    return multipliers


def protected_vectors(
    site: Site, component: str, received: dict[str, Arrays], settings: PrivacySettings
) -> SharedVectors:
    """What leaves instead of the site's bank: the same number of features, or their prototypes."""
    method = site.method
    source = method.feature_networks.get(component)
    if source is None or source not in received:
        raise PublicError(
            f"{site.place.name}: no network came down to recompute '{component}' with, so it cannot be "
            "protected: the result is not sent"
        )
    network = deepcopy(method.get_submodule(source))
    network.load_state_dict(to_tensors(received[source]))
    draws = torch.Generator()
    draws.seed()
    public = _public(site.preset) if settings.mix > 1 else torch.zeros(0)
    maker = VectorMaker(network, site.sampler, method.views, settings, public, draws, np.random.default_rng())
    return maker.make(site.preset.pretraining.bank_size)


@lru_cache(maxsize=1)
def _public(preset: Preset) -> torch.Tensor:
    """The same phantom images in every round."""
    return public_images(preset)
