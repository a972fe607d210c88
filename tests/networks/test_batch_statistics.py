"""BatchNorm statistics: estimated as the plain average, and kept where they must not change."""

from copy import deepcopy

import torch

from fclseg.networks.statistics import estimate_statistics, statistics_kept
from fclseg.networks.unet import UNet

FIRST = "encoder.stem.conv_0.adn.N"


def test_the_estimate_of_the_first_layer_is_the_mean_over_all_batches():
    network = UNet((4, 8), 2)
    batches = [torch.rand(3, 1, 16, 16) * scale for scale in (1.0, 2.0)]
    network.train()
    network(torch.rand(3, 1, 16, 16) * 50)  # statistics of other images, which must not survive
    weights = deepcopy(dict(network.named_parameters()))
    network.eval()
    estimate_statistics(network, batches)
    first = network.encoder.stem.conv_0.conv
    with torch.no_grad():
        outputs = [first(batch) for batch in batches]
    mean = torch.stack([output.mean(dim=(0, 2, 3)) for output in outputs]).mean(dim=0)
    variance = torch.stack([output.var(dim=(0, 2, 3)) for output in outputs]).mean(dim=0)
    norm = network.get_submodule(FIRST)
    torch.testing.assert_close(norm.running_mean, mean)
    torch.testing.assert_close(norm.running_var, variance)
    assert not network.training and norm.momentum == 0.1
    assert all(torch.equal(value, weights[name]) for name, value in network.named_parameters())


def test_kept_statistics_stay_and_the_output_is_that_of_training_mode():
    network = UNet((4, 8), 2).train()
    twin, images = deepcopy(network), torch.rand(3, 1, 16, 16)
    before = network.get_submodule(FIRST).running_mean.clone()
    with statistics_kept(network):
        output = network(images)
    assert torch.equal(network.get_submodule(FIRST).running_mean, before)
    assert torch.equal(output, twin(images))
    assert not torch.equal(twin.get_submodule(FIRST).running_mean, before)
    assert network.get_submodule(FIRST).momentum == 0.1
