import math

import pytest
import torch

from fclseg.data.sampler import Batch
from fclseg.methods.byol import BYOL, byol_loss
from fclseg.presets import get_preset

PRESET = get_preset("demo", channels=(4, 8), hidden=16, structural_positives=0.0)


def random_batch(size=6, partners=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = [torch.rand(size, 1, 48, 48, generator=generator) for _ in range(2)]
    return Batch(images[0], torch.arange(size) % 4, images[1] if partners else None)


def seeded(number=7):
    return torch.Generator().manual_seed(number)


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("features", [1, 3, 64])
def test_loss_is_the_squared_distance_of_unit_vectors(size, features):
    z, z_target = torch.randn(size, features, generator=seeded()), torch.randn(size, features, generator=seeded(8))
    expected = 0.0
    for a, b in zip(z.tolist(), z_target.tolist(), strict=True):
        norm_a, norm_b = math.hypot(*a), math.hypot(*b)
        expected += sum((x / norm_a - y / norm_b) ** 2 for x, y in zip(a, b, strict=True)) / size
    assert byol_loss(z, z_target).item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_both_directions_are_averaged():
    method, batch = BYOL(PRESET), random_batch()
    generator = seeded()
    first, second = method.views(batch.images, generator), method.views(batch.images, generator)
    one = byol_loss(method.predictor(method.online(first)), method.target(second))
    other = byol_loss(method.predictor(method.online(second)), method.target(first))
    assert method.loss(batch, seeded()).item() == pytest.approx((one + other).item() / 2, rel=1e-5)


def test_no_gradient_reaches_the_target():
    method = BYOL(PRESET)
    method.loss(random_batch(), seeded()).backward()
    assert all(parameter.grad is None for parameter in method.target.parameters())
    assert all(parameter.grad is not None for parameter in method.trainable())
    assert sum(1 for _ in method.trainable()) == sum(
        1 for module in (method.online, method.predictor) for _ in module.parameters()
    )


def test_target_follows_the_online_network_as_computed_by_hand():
    method = BYOL(get_preset("demo", channels=(4, 8), hidden=16, ema_momentum=0.9))
    expected = {name: value.double() for name, value in method.target.named_parameters()}
    statistics = {name: value.clone() for name, value in method.target.named_buffers()}
    for step in range(3):
        with torch.no_grad():
            for parameter in method.online.parameters():
                parameter.add_(0.1 * (step + 1))
        method.after_step()
        for name, theta in method.online.named_parameters():
            expected[name] = 0.9 * expected[name] + 0.1 * theta.double()
    for name, value in method.target.named_parameters():
        torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-6)
    assert all(torch.equal(value, statistics[name]) for name, value in method.target.named_buffers())


def test_what_is_sent_can_be_received():
    sender, receiver = BYOL(PRESET), BYOL(PRESET)
    receiver.receive({name: sender.send(name) for name in ("online", "predictor", "target")})
    for name, value in sender.state_dict().items():
        assert torch.equal(receiver.state_dict()[name], value)


@pytest.mark.parametrize("missing", ["projector.0.weight", "projector.1.running_mean"])
def test_a_component_with_a_gap_is_never_taken_in(missing):
    sender, receiver = BYOL(PRESET), BYOL(PRESET)
    sent = {name: value for name, value in sender.send("online").items() if name != missing}
    with pytest.raises(RuntimeError, match=missing):
        receiver.receive({"online": sent})
