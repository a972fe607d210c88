"""The U-Net's blocks are those of MONAI: the same names, initial weights, outputs and gradients, bit for bit."""

import pytest
import torch
from monai.networks.nets import basic_unet
from torch import nn

from fclseg.networks.blocks import Down, TwoConv, UpCat, folded
from fclseg.networks.unet import UNet

MONAI = {
    "act": ("LeakyReLU", {"negative_slope": 0.1, "inplace": True}),
    "norm": "batch",
    "bias": True,
}
"""How MONAI's blocks are asked for the layers of the paper."""


def _image(channels: int, height: int, width: int) -> torch.Tensor:
    return torch.randn(2, channels, height, width, generator=torch.Generator().manual_seed(channels))


PAIRS = {
    "two convolutions": (lambda: TwoConv(3, 8), lambda: basic_unet.TwoConv(2, 3, 8, **MONAI), [_image(3, 8, 9)]),
    "down": (lambda: Down(4, 8), lambda: basic_unet.Down(2, 4, 8, **MONAI), [_image(4, 9, 10)]),
    "up": (
        lambda: UpCat(8, 4, 4),
        lambda: basic_unet.UpCat(2, 8, 4, 4, **MONAI),
        [_image(8, 4, 5), _image(4, 8, 10)],
    ),
    "up to odd sizes": (
        lambda: UpCat(8, 4, 4),
        lambda: basic_unet.UpCat(2, 8, 4, 4, **MONAI),
        [_image(8, 4, 5), _image(4, 9, 11)],
    ),
}


def _built(make, training: bool) -> nn.Module:
    torch.manual_seed(3)
    return make().train(training)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_a_block_is_monais_block(pair, training):
    ours, theirs, inputs = _built(pair[0], training), _built(pair[1], training), pair[2]
    outputs, gradients = [], []
    for block in (ours, theirs):
        outputs.append(block(*inputs))
        outputs[-1].square().sum().backward()
        gradients.append([parameter.grad for parameter in block.parameters()])
    assert torch.equal(*outputs)
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    assert all(torch.equal(*both) for both in zip(*gradients, strict=True))
    ours_state, theirs_state = ours.state_dict(), theirs.state_dict()  # with the statistics of that forward pass
    assert list(ours_state) == list(theirs_state)
    assert all(torch.equal(ours_state[name], theirs_state[name]) for name in ours_state)


def test_folded_batch_norm_computes_the_same_and_leaves_the_network_alone():
    torch.manual_seed(5)
    network = UNet((4, 8, 16), classes=3)
    for _ in range(3):
        network(3 + 2 * torch.randn(4, 1, 21, 18))  # statistics that are not 0 and 1
    for norm in (module for module in network.modules() if isinstance(module, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.5, 2)
        nn.init.uniform_(norm.bias, -1, 1)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    fast, image = folded(network), 3 + 2 * torch.randn(2, 1, 21, 18)
    assert not [module for module in fast.modules() if isinstance(module, nn.BatchNorm2d)] and not fast.training
    assert network.training and all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    with torch.no_grad():
        torch.testing.assert_close(fast(image), network.eval()(image), rtol=1e-4, atol=1e-5)
