import math

import pytest
import torch

from fclseg.data.sampler import Batch
from fclseg.methods.byol import BYOL
from fclseg.methods.moco import MoCo
from fclseg.methods.positives import positive_images
from fclseg.methods.registry import build_method
from fclseg.presets import get_preset

PLAIN, STRUCTURAL = (get_preset("demo", structural_positives=share) for share in (0.0, 0.5))


def batch_with_partners(size):
    images, partners = torch.rand(2, size, 1, 48, 48, generator=torch.Generator().manual_seed(0))
    return Batch(images, torch.arange(size) % 4, partners)


def seeded():
    return torch.Generator().manual_seed(7)


def test_the_share_is_taken_from_the_partners_and_the_rest_from_the_images():
    batch = batch_with_partners(200)
    half = positive_images(batch, 0.5, seeded())
    replaced = (half == batch.partners).flatten(1).all(dim=1)
    assert torch.equal(half[~replaced], batch.images[~replaced]) and 70 < replaced.sum() < 130
    assert torch.equal(positive_images(batch, 1.0, seeded()), batch.partners)


def test_no_share_needs_no_partners_and_no_random_number():
    batch, source = batch_with_partners(4), seeded()
    assert torch.equal(positive_images(Batch(batch.images, batch.partitions), 0.0, source), batch.images)
    assert torch.equal(torch.rand(3, generator=source), torch.rand(3, generator=seeded()))


@pytest.mark.parametrize("kind", [BYOL, MoCo])
def test_the_preset_decides_whether_the_loss_sees_partners(kind):
    batch = batch_with_partners(8)
    other = Batch(batch.images, batch.partitions, batch.partners.flip(0))

    def loss(preset, given):
        torch.manual_seed(0)
        method = kind(preset)
        if kind is MoCo:
            method.bank.push(
                torch.nn.functional.normalize(torch.rand(8, preset.networks.feature_size)), given.partitions
            )
        return method.loss(given, seeded()).item()

    assert math.isfinite(loss(STRUCTURAL, batch)) and loss(STRUCTURAL, batch) != loss(STRUCTURAL, other)
    assert loss(PLAIN, batch) == loss(PLAIN, other)


@pytest.mark.parametrize("job", ["fedbyol", "fedu", "fclopt", "fclopt_ptnu", "fclopt_dp", "fedmoco"])
def test_rows_ask_for_partners_with_structural_positives_only(job):
    assert build_method(job, STRUCTURAL, 0).wants_partners and not build_method(job, PLAIN, 0).wants_partners
    assert build_method("fcl", PLAIN, 0).wants_partners
