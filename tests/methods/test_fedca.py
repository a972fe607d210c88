"""FedCA: public images, alignment to the base network, and the shared dictionary."""

import pytest
import torch

from fclseg.data.sampler import Batch
from fclseg.methods.fedca import FedCA, public_images
from fclseg.presets import get_preset

PRESET = get_preset("demo", bank_size=16)


@pytest.fixture(scope="module")
def method():
    torch.manual_seed(0)
    method = FedCA(PRESET, base_steps=2)
    method._prepare_public()
    return method


def batch(count=4):
    return Batch(torch.rand(count, 1, PRESET.images.size, PRESET.images.size), torch.arange(count) % 4)


def test_public_images_look_prepared_and_differ(method):
    images = method.public.images
    assert images.shape == (64, 1, PRESET.images.size, PRESET.images.size)
    assert images.min() >= 0 and images.max() <= 1 and (images.std(dim=(1, 2, 3)) > 0.1).all()
    assert len({image.sum().item() for image in images}) == len(images)


def test_every_site_draws_the_same_public_set(method):
    torch.manual_seed(123)
    other = FedCA(PRESET, base_steps=2)
    other._prepare_public()
    assert torch.equal(other.public.images, method.public.images)
    assert torch.equal(other.public.anchors, method.public.anchors)
    torch.testing.assert_close(method.public.anchors.norm(dim=1), torch.ones(64))
    assert torch.equal(public_images(PRESET), method.public.images)


def test_alignment_is_the_squared_distance_to_the_anchors_and_leaves_batchnorm_alone(method):
    before = {name: value.clone() for name, value in method.online.state_dict().items()}
    drawn = torch.Generator().manual_seed(4)
    value = method.train()._alignment(torch.Generator().manual_seed(4))
    chosen = torch.randperm(64, generator=drawn)[: PRESET.pretraining.batch_size].tolist()
    small = torch.nn.functional.interpolate(
        method.public.images, size=PRESET.images.view_size, mode="bilinear", antialias=True
    )
    with torch.no_grad():
        features = method.online.eval()(small)
    method.online.train()
    expected = [((features[i] / features[i].norm() - method.public.anchors[i]) ** 2).sum() for i in chosen]
    assert value.item() == pytest.approx(float(sum(expected) / len(expected)), rel=1e-4)
    assert all(torch.equal(before[name], now) for name, now in method.online.state_dict().items())
    assert method.online.training


def test_the_alignment_is_part_of_the_loss_with_its_weight(method):
    one, loss, usual = batch(), {}, method.alignment
    for weight in (0.0, 0.1, 1.0):
        method.alignment = weight
        loss[weight] = method.loss(one, torch.Generator().manual_seed(0)).item()
    method.alignment = usual
    assert usual == 0.1 and loss[1.0] > loss[0.0]
    assert loss[0.1] - loss[0.0] == pytest.approx(0.1 * (loss[1.0] - loss[0.0]), rel=0.1)  # statistics move a little


def test_dictionary_of_others_raises_the_loss(method):
    one, loss = batch(), {}
    entries = {
        "features": torch.randn(16, PRESET.networks.feature_size),
        "partitions": torch.zeros(16, dtype=torch.uint8),
    }
    for name, states in (("alone", {}), ("shared", {"site-2": entries})):
        method.receive_others("dictionary", states)
        loss[name] = method.loss(one, torch.Generator().manual_seed(0)).item()
    assert loss["shared"] > loss["alone"]


def test_after_a_step_the_newest_features_are_in_the_dictionary(method):
    method.loss(batch(), torch.Generator().manual_seed(0))
    features, _ = method._fresh
    method.after_step()
    expected = torch.nn.functional.normalize(features, dim=1)
    distances = torch.cdist(expected, method.send("dictionary")["features"])
    assert distances.min(dim=1).values.max() < 1e-3
