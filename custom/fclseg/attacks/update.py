"""Update inversion: slices from the update of a small site (learning to invert; Wu et al. 2023).

The attacker knows the global networks, how sites train, and which protections are on. It trains on slices of its own as
a site would, and learns to turn the updates into images. An update tells more than a gradient: BatchNorm's running
statistics are means over the site's images.

Gradient matching (Zhu et al. 2019; Geiping et al. 2020) did worse than a blind guess where it was tried. A step on two
slices has hardly a gradient: in the projector, BatchNorm over two different images gives -1 and 1 whatever they show.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch.nn import functional

from fclseg.attacks.material import Leak, joined
from fclseg.data.sampler import Batch
from fclseg.data.slices import SliceStore
from fclseg.federation.states import Arrays, to_arrays
from fclseg.methods.base import Method
from fclseg.methods.training import make_optimizer
from fclseg.privacy.protections import PrivacySettings
from fclseg.privacy.update_noise import clip_and_noise
from fclseg.randomness import derive_seed, generator

SMALL, PROJECTED = 512, 64
"""Tensors up to this size are looked at as they are, and larger ones through this many random directions."""
COMPONENTS = 64
"""Principal components of all updates that the decoder gets."""


@dataclass(frozen=True)
class Situation:
    """How the site trains. The defaults are as easy for the attacker as can be."""

    slices: int = 1  # different slices in the update, all of one patient
    steps: int = 1
    real: bool = False  # random views and the method's own optimiser; otherwise slices as they are and plain descent


def updates(
    method: Method,
    store: SliceStore,
    patients: Sequence[str],
    count: int,
    situation: Situation,
    privacy: PrivacySettings,
    seed: int = 0,
) -> tuple[np.ndarray, Leak]:
    """About ``count`` updates as numbers [n, D], the patients one after the other, and a leak that has no features."""
    side, found, leaks = method.preset.images.view_size, [], []
    for number, patient in enumerate(np.repeat(patients, max(1, count // len(patients)))):
        random = np.random.default_rng(derive_seed(seed, "update", str(patient), number))
        rows = store.select([str(patient)])
        rows = np.sort(random.choice(rows, min(situation.slices, len(rows)), replace=False))
        images = torch.from_numpy(store.images[rows].astype(np.float32))[:, None]
        twice = np.resize(np.arange(len(rows)), max(2, len(rows)))  # BatchNorm needs two images, if only the same one
        partitions = torch.from_numpy(store.partition[rows[twice]].astype(np.int64))
        batch = Batch(images[twice], partitions, images[twice].flip(0))
        found.append(compressed(sent_update(method, batch, situation, privacy, derive_seed(seed, "step", number))))
        places = torch.zeros(len(rows), dtype=torch.int64)  # an update does not tell the partition
        shown = whole(images, side)
        leaks.append(Leak(torch.zeros(len(rows), 0), places, shown, rows, np.zeros(len(rows), np.int64)))
    return np.stack(found), joined(leaks)


def sent_update(method: Method, batch: Batch, situation: Situation, privacy: PrivacySettings, seed: int) -> Arrays:
    """The change of the online network that leaves the site, with clipping and noise as the gate applies them."""
    draws = generator(seed, "views")
    with unchanged(method, as_they_are=not situation.real):
        before = to_arrays(method.send("online"))
        optimizer = make_optimizer(method) if situation.real else _plain_descent(method)
        for _ in range(situation.steps):
            optimizer.zero_grad(set_to_none=True)
            method.loss(batch, draws).backward()
            optimizer.step()
            method.after_step()
        after = to_arrays(method.send("online"))
    if privacy.clip is not None:
        random = np.random.default_rng(derive_seed(seed, "noise"))
        after = clip_and_noise({"online": after}, {"online": before}, privacy.clip, privacy.sigma, random)["online"]
    return {name: after[name] - before[name] for name in after if after[name].dtype.kind == "f"}


def _plain_descent(method: Method) -> torch.optim.Optimizer:
    return torch.optim.SGD(list(method.trainable()), lr=method.learning_rates["sgd"])


def compressed(update: Mapping[str, np.ndarray]) -> np.ndarray:
    """An update as a few thousand numbers; the random directions are always the same."""
    parts = []
    for number, (_, array) in enumerate(sorted(update.items())):
        flat = array.ravel().astype(np.float32)
        if len(flat) > SMALL:
            flat = _directions(number, len(flat)) @ flat
        parts.append(flat)
    return np.concatenate(parts)


@lru_cache(maxsize=128)
def _directions(number: int, size: int) -> np.ndarray:
    """Random directions for the tensor of this number."""
    return np.random.default_rng(number).standard_normal((PROJECTED, size), np.float32)


def with_features(known: np.ndarray, wanted: np.ndarray, known_leak: Leak, leak: Leak) -> tuple[Leak, Leak]:
    """Both leaks with the principal components of their updates as features. All scales come from the attacker's own
    updates, and the components too."""
    mean, scale = known.mean(axis=0), known.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    own, other = (torch.from_numpy((numbers - mean) / scale).double() for numbers in (known, wanted))
    directions = torch.linalg.svd(own, full_matrices=False).Vh[:COMPONENTS].T
    size = (own @ directions).norm(dim=1).mean()
    return tuple(  # type: ignore[return-value]
        Leak((numbers @ directions / size).float()[one.vector], one.partitions, one.views, one.rows, one.vector)
        for numbers, one in ((own, known_leak), (other, leak))
    )


def whole(images: torch.Tensor, side: int) -> torch.Tensor:
    """Slices as they are, at the size of a view."""
    return functional.interpolate(images, size=side, mode="bilinear", antialias=True).clamp(0, 1)


@contextmanager
def unchanged(method: Method, as_they_are: bool) -> Iterator[None]:
    """In training mode, and afterwards with the state of before. ``as_they_are``: views are the slices themselves."""
    views, state = method.views, {name: tensor.clone() for name, tensor in method.state_dict().items()}
    if as_they_are:
        side = method.preset.images.view_size
        method.views = lambda images, generator: whole(images, side)  # type: ignore[assignment]
    method.train()
    try:
        yield
    finally:
        method.views = views
        method.load_state_dict(state)
