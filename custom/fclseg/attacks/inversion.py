"""Inversion: a decoder that was trained on the attacker's own patients turns vectors of others into images."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from fclseg.attacks.material import Leak
from fclseg.attacks.scores import psnr, ssim
from fclseg.randomness import generator

WIDTH = 256
PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)


@dataclass(frozen=True)
class FeatureDecoder:
    """A vector [B, D] and its partition, which leaves with it, -> an image [B, 1, v, v].

    One layer of random rectified units, and ridge regression from it to the pixels. It has a closed form, so every
    protection is attacked by a decoder that has converged.
    """

    hidden: torch.Tensor  # [D + partitions + 1, WIDTH]
    pixels: torch.Tensor  # [D + partitions + 1 + WIDTH, v * v]
    partitions: int
    view: int

    def __call__(self, features: torch.Tensor, partitions: torch.Tensor) -> torch.Tensor:
        images = _units(self.hidden, features, partitions, self.partitions) @ self.pixels
        return images.reshape(-1, 1, self.view, self.view).clamp(0, 1).float()


def _units(hidden: torch.Tensor, features: torch.Tensor, partitions: torch.Tensor, count: int) -> torch.Tensor:
    which = functional.one_hot(partitions, count)
    plain = torch.cat([features, which, torch.ones(len(features), 1)], dim=1).double()
    return torch.cat([plain, (plain @ hidden).relu()], dim=1)


@dataclass(frozen=True)
class Reconstruction:
    """What the attacker sees, and how close it is to the truth."""

    images: torch.Tensor
    ssim: torch.Tensor  # of each image
    psnr: torch.Tensor


def train_decoder(known: Leak, partitions: int, seed: int = 0) -> FeatureDecoder:
    """On the attacker's own (vector, view) pairs. The penalty is the one that suits the second half of them, which are
    other patients than the first, when the first half is learnt from."""
    draws = generator(seed, "decoder")
    size = known.features.shape[1] + partitions + 1
    hidden = torch.randn(size, WIDTH, generator=draws, dtype=torch.float64)
    units = _units(hidden, known.features, known.partitions, partitions)
    pixels = known.views.flatten(1).double()
    half = len(units) // 2
    fitted = Ridge(units[:half], pixels[:half])
    errors = {
        penalty: float((units[half:] @ fitted.weights(penalty) - pixels[half:]).square().mean())
        for penalty in PENALTIES
    }
    best = min(errors, key=lambda penalty: errors[penalty])
    return FeatureDecoder(hidden, Ridge(units, pixels).weights(best), partitions, known.views.shape[-1])


class Ridge:
    """argmin |units w - pixels|^2 + penalty |w|^2 for any penalty, from one decomposition."""

    def __init__(self, units: torch.Tensor, pixels: torch.Tensor):
        self._values, self._vectors = torch.linalg.eigh(units.T @ units)
        self._turned = self._vectors.T @ (units.T @ pixels)

    def weights(self, penalty: float) -> torch.Tensor:
        return self._vectors @ (self._turned / (self._values.clamp(min=0) + penalty)[:, None])


def reconstruct(decoder: FeatureDecoder, victims: Leak) -> Reconstruction:
    """The victims' views from their vectors."""
    return _scored(decoder(victims.features, victims.partitions), victims)


def blind_guess(known: Leak, victims: Leak) -> Reconstruction:
    """Without any vector: the mean view of the known patients in the same partition."""
    mean = known.views.mean(dim=0)
    guesses = [
        known.views[known.partitions == partition].mean(dim=0) if bool((known.partitions == partition).any()) else mean
        for partition in victims.partitions
    ]
    return _scored(torch.stack(guesses), victims)


def _scored(images: torch.Tensor, victims: Leak) -> Reconstruction:
    return Reconstruction(images, ssim(images, victims.views), psnr(images, victims.views))
