"""Representation perturbation (Soteria; Sun et al. 2021): removes the entries of a feature that reveal most about its
image.

Soteria perturbs a representation r(x) so that the image of the changed representation is as far from x as possible. To
first order that means the entries with the largest |r_i| / ||grad_x r_i||, which are set to zero.
"""

import torch
from torch import nn

PROBES, STEP = 16, 1e-2
"""Number of random directions to estimate gradient norms, and the step along them. Exact norms would need one backward
pass per entry: 64 in `small` and 384 in `paper`."""


@torch.no_grad()
def gradient_norms(
    network: nn.Module, images: torch.Tensor, generator: torch.Generator, probes: int = PROBES
) -> torch.Tensor:
    """||grad_x r_i(x)|| for every image and entry [B, D]: for v ~ N(0, I), its square is the mean of (dr_i/dv)^2."""
    start = network(images)
    total = torch.zeros_like(start)
    for _ in range(probes):
        direction = torch.randn(images.shape, generator=generator).to(images)
        total += ((network(images + STEP * direction) - start) / STEP).square()
    return (total / probes).sqrt()


def remove_revealing(features: torch.Tensor, norms: torch.Tensor, share: float) -> torch.Tensor:
    """Features [B, D] without the fraction ``share`` of entries with the largest |r_i| / norm_i, chosen per feature."""
    count = round(share * features.shape[1])
    ratio = features.abs() / norms.clamp(min=torch.finfo(norms.dtype).tiny)
    return features.scatter(1, ratio.topk(count, dim=1).indices, 0.0)
