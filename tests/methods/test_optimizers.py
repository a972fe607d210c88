"""The optimisers take the same steps as torch, bit for bit, even after their state was saved and restored."""

import copy

import pytest
import torch
from torch import nn

from fclseg.methods.optimizers import BUILDERS
from fclseg.presets import get_preset

SETTINGS = get_preset("demo").pretraining
PLAIN = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=SETTINGS.sgd_momentum, weight_decay=SETTINGS.weight_decay),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=SETTINGS.weight_decay),
}


def _steps(network: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    images = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
    for _ in range(3):
        optimizer.zero_grad()
        network(images).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_the_steps_are_torchs(name):
    torch.manual_seed(0)
    ours = nn.Linear(3, 2)
    theirs = copy.deepcopy(ours)
    kept, torchs = BUILDERS[name](SETTINGS, list(ours.parameters()), 0.1), PLAIN[name](theirs.parameters())
    _steps(ours, kept, seed=1)
    _steps(theirs, torchs, seed=1)
    resumed = BUILDERS[name](SETTINGS, list(ours.parameters()), 0.1)
    resumed.load_state_dict(copy.deepcopy(kept.state_dict()))
    _steps(ours, resumed, seed=2)
    _steps(theirs, torchs, seed=2)
    assert isinstance(resumed, type(torchs))
    assert all(torch.equal(*pair) for pair in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert all(parameter.grad is not None and parameter.requires_grad for parameter in ours.parameters())
