"""Update inversion: images from one site's update (Zhu et al. 2019; Geiping et al. 2020).

The easiest case for the attacker: the site has two slices, takes a single step of plain gradient descent, and shows
them to the network as they are, without random views. A real round, of many steps and random views, is harder.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from fclseg.attacks.scores import WINDOW, psnr, ssim
from fclseg.data.sampler import Batch
from fclseg.methods.base import Method
from fclseg.privacy.settings import PrivacySettings
from fclseg.privacy.update_noise import clip_and_noise
from fclseg.randomness import generator

STEPS, RATE, SMOOTHNESS, START_NOISE = 300, 0.02, 1e-1, 0.05


@dataclass(frozen=True)
class Rebuilt:
    """Images that the attacker got, and how close they are to the truth; the start is the attacker's blind guess."""

    images: torch.Tensor
    ssim: torch.Tensor
    psnr: torch.Tensor
    start_ssim: torch.Tensor
    start_psnr: torch.Tensor


def invert_update(
    method: Method,
    images: torch.Tensor,
    partitions: torch.Tensor,
    guess: torch.Tensor,
    settings: PrivacySettings,
    seed: int = 0,
    steps: int = STEPS,
    smoothness: float = SMOOTHNESS,
    window: int = WINDOW,
) -> Rebuilt:
    """Find images [B, 1, v, v] whose gradient points where the site's update points, beginning at ``guess``."""
    with as_they_are(method):
        sent = _protected(gradient(method, images, partitions, seed), settings, seed)
        noise = torch.randn(guess.shape, generator=generator(seed, "start"))  # equal images would have no gradient
        found = (guess + START_NOISE * noise).clamp(0, 1).requires_grad_()
        optimizer = torch.optim.Adam([found], lr=RATE)
        for _ in range(steps):
            computed = gradient(method, found, partitions, seed, differentiable=True)
            loss = 1 - functional.cosine_similarity(_flat(computed), _flat(sent), dim=0) + smoothness * roughness(found)
            (found.grad,) = torch.autograd.grad(loss, [found])
            optimizer.step()
            with torch.no_grad():
                found.clamp_(0, 1)
    found = found.detach()
    likeness = ssim(found, images, window), ssim(guess, images, window)
    return Rebuilt(found, likeness[0], psnr(found, images), likeness[1], psnr(guess, images))


def gradient(
    method: Method, images: torch.Tensor, partitions: torch.Tensor, seed: int, differentiable: bool = False
) -> Sequence[torch.Tensor]:
    """The gradient of the method's loss for its trained parameters; partners are the other slices of the batch."""
    batch = Batch(images, partitions, images.flip(0))
    parameters = list(method.trainable())
    loss = method.loss(batch, generator(seed, "step"))
    return torch.autograd.grad(loss, parameters, create_graph=differentiable, materialize_grads=True)


def roughness(images: torch.Tensor) -> torch.Tensor:
    """Mean absolute difference of neighbouring pixels, summed over both directions."""
    return images.diff(dim=2).abs().mean() + images.diff(dim=3).abs().mean()


def _protected(gradients: Sequence[torch.Tensor], settings: PrivacySettings, seed: int) -> Sequence[torch.Tensor]:
    """What leaves of an update along the gradient: clipped and with noise, as the gate does it."""
    if settings.clip is None:
        return gradients
    update = {str(number): part.numpy() for number, part in enumerate(gradients)}
    nothing = {name: np.zeros_like(part) for name, part in update.items()}
    sent = clip_and_noise({"": update}, {"": nothing}, settings.clip, settings.sigma, np.random.default_rng(seed))[""]
    return [torch.from_numpy(sent[name]) for name in update]


def _flat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.flatten() for part in parts])


@contextmanager
def as_they_are(method: Method) -> Iterator[None]:
    """Views that are the images themselves, in training mode, with BatchNorm's statistics as they were afterwards."""
    views, state = method.views, {name: tensor.clone() for name, tensor in method.state_dict().items()}
    method.views = lambda images, generator: images  # type: ignore[assignment]
    method.train()
    try:
        yield
    finally:
        method.views = views
        method.load_state_dict(state)
