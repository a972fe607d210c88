"""Image mixing (InstaHide; Huang et al. 2020): features of mixtures with random signs instead of features of images.

As encryption, InstaHide has been broken for an attacker who has the mixed images (Carlini et al. 2021). Here only
features of mixed images leave. docs/privacy.md reports how much that still protects.
"""

import torch

LARGEST_WEIGHT = 0.65
"""Maximum weight of an image in its mixture; InstaHide's value."""

CENTRE = 0.5
"""Images are in [0, 1]; signs flip around the middle."""


def private_count(mixed: int) -> int:
    """The number of the site's own images in a mixture. The others are public."""
    return mixed - mixed // 2


def mixing_weights(count: int, mixed: int, generator: torch.Generator) -> torch.Tensor:
    """Weights [count, mixed] that sum to 1, the largest first and at most ``LARGEST_WEIGHT``."""
    weights = torch.rand(count, mixed, generator=generator).sort(dim=1, descending=True).values
    weights = weights / weights.sum(dim=1, keepdim=True)
    excess = (weights[:, :1] - LARGEST_WEIGHT).clamp(min=0)
    rest = weights[:, 1:] / weights[:, 1:].sum(dim=1, keepdim=True)
    return torch.cat([weights[:, :1] - excess, weights[:, 1:] + excess * rest], dim=1)


def random_members(count: int, mixed: int, public: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """For each image, the indices [count, private] of the batch images in its mixture, itself first, and the indices
    [count, mixed - private] of public images."""
    own = private_count(mixed)
    others = [torch.arange(count), *(torch.randint(count, (count,), generator=generator) for _ in range(own - 1))]
    return torch.stack(others, dim=1), torch.randint(public, (count, mixed - own), generator=generator)


def mix_images(images: torch.Tensor, public: torch.Tensor, weights: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """sigma * sum_j lambda_j x_j around the middle of the range: images [B, p, H, W], public [B, q, H, W], weights
    [B, p + q], signs [B, 1, H, W] of -1 and 1 -> [B, 1, H, W]."""
    members = torch.cat([images, public], dim=1) - CENTRE
    return CENTRE + signs * torch.einsum("bk,bkhw->bhw", weights.to(members), members)[:, None]


def random_signs(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """-1 or 1 for each pixel."""
    return torch.randint(2, shape, generator=generator) * 2.0 - 1.0
