"""Initial weights, frozen encoders and parameter groups."""

import torch

from fclseg.finetune.network import parameter_groups
from fclseg.networks.freezable import FreezableUNet, measure_statistics

CHANNELS = (4, 8, 12)


def states(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def train_steps(network, steps=3):
    optimizer = torch.optim.Adam(parameter_groups(network, 1e-2, 1.0), lr=1e-2)
    for _ in range(steps):
        network.train()
        optimizer.zero_grad()
        network(torch.rand(2, 1, 16, 16)).square().mean().backward()
        optimizer.step()


def test_initial_weights_come_from_the_seed_alone():
    torch.manual_seed(1)
    first = FreezableUNet(CHANNELS, 4, seed=5)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(1)), "building a network must not disturb anybody else's random numbers"
    second, other = FreezableUNet(CHANNELS, 4, seed=5), FreezableUNet(CHANNELS, 4, seed=6)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.decoder.head.weight, other.decoder.head.weight)


def test_frozen_encoder_stays_bit_identical_and_the_decoder_learns():
    network = FreezableUNet(CHANNELS, 4)
    network.freeze()
    encoder, decoder = states(network.encoder), states(network.decoder)
    train_steps(network)
    assert all(torch.equal(network.encoder.state_dict()[name], tensor) for name, tensor in encoder.items())
    assert any(not torch.equal(network.decoder.state_dict()[name], tensor) for name, tensor in decoder.items())


def test_thawed_encoder_learns_again():
    network = FreezableUNet(CHANNELS, 4)
    network.freeze()
    train_steps(network)
    encoder = states(network.encoder)
    network.freeze(False)
    train_steps(network)
    changed = [name for name, tensor in encoder.items() if not torch.equal(network.encoder.state_dict()[name], tensor)]
    assert set(changed) == set(encoder), "weights and BatchNorm statistics move after the warm-up"


def test_encoder_has_its_own_learning_rate():
    network = FreezableUNet(CHANNELS, 4)
    encoder, decoder = parameter_groups(network, 0.01, 0.1)
    assert encoder["lr"] == 0.001 and decoder["lr"] == 0.01
    assert len(encoder["params"]) + len(decoder["params"]) == len(list(network.parameters()))


def test_random_encoder_gets_the_average_statistics_and_a_trained_one_keeps_its_own():
    images = [torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    network = FreezableUNet(CHANNELS, 4)
    convolution, norm = network.encoder.stem.conv_0.conv, network.encoder.stem.conv_0.adn.N
    measure_statistics(network, images)
    with torch.no_grad():
        expected = torch.stack([convolution(batch).mean(dim=(0, 2, 3)) for batch in images]).mean(dim=0)
    assert torch.allclose(norm.running_mean, expected, atol=1e-6)
    kept = states(network.encoder)
    measure_statistics(network, [torch.rand(3, 1, 16, 16) + 5])
    assert all(torch.equal(network.encoder.state_dict()[name], tensor) for name, tensor in kept.items())
