"""Structural positives: what BYOL and MoCo compare an image with."""

import torch

from fclseg.data.sampler import Batch


def positive_images(batch: Batch, share: float, generator: torch.Generator) -> torch.Tensor:
    """The images whose views are the positives: the batch itself, with a fraction ``share`` replaced by partners.

    With a fraction of 0, as in the paper, an image is compared with another view of itself. A partner is a slice of the
    same partition in another volume, as in FCL's local positives. The two have the same anatomy but differ in patient
    and scanner.
    """
    if share == 0:
        return batch.images
    replaced = torch.rand(len(batch.images), generator=generator) < share
    return torch.where(replaced.to(batch.images.device)[:, None, None, None], batch.partner_images, batch.images)
