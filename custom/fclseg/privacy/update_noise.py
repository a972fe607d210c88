"""Clipping and noise: less of a site's images can be recovered from what it sends."""

import math
from collections.abc import Mapping

import numpy as np

from fclseg.federation.states import VARIANCE, Arrays


def clip_and_noise(
    sent: Mapping[str, Arrays],
    received: Mapping[str, Arrays],
    clip: float,
    sigma: float,
    random: np.random.Generator,
    share: float = 1.0,
) -> dict[str, Arrays]:
    """Replace every component by the received component + the clipped update + noise.

    ``clip`` is the maximum Euclidean norm of the update over all components together. ``sigma`` is the standard
    deviation of the Gaussian noise on each value, as a multiple of ``clip``. Counters are not changed.
    ``share``: this site's part of the noise, if several sites add theirs to one sum. Then a variance may leave below
    zero, so that the noise of the sum is that of all parts; the server bounds the mean.
    """
    updates = {
        (component, name): array.astype(np.float64) - received[component][name]
        for component, arrays in sent.items()
        for name, array in arrays.items()
        if np.issubdtype(array.dtype, np.floating)
    }
    norm = math.sqrt(sum(float((update**2).sum()) for update in updates.values()))
    scale = min(1.0, clip / norm) if norm else 1.0
    result = {component: dict(arrays) for component, arrays in sent.items()}
    for (component, name), update in updates.items():
        noise = random.standard_normal(update.shape) * (share * sigma * clip)
        value = received[component][name] + scale * update + noise
        if name.endswith(VARIANCE) and share == 1.0:
            value = np.maximum(value, 0.0)  # a network with a negative variance cannot compute anything
        result[component][name] = np.asarray(value).astype(sent[component][name].dtype)
    return result
