"""BatchNorm statistics are kept where they must not change."""

from copy import deepcopy

import torch

from fclseg.networks.statistics import statistics_kept
from fclseg.networks.unet import UNet

FIRST = "encoder.stem.conv_0.adn.N"


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
