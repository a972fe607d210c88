"""The average of a fine-tuned network and the network that it started from."""

from pathlib import Path

import torch
from torch import nn

from fclseg.networks.loading import read_tensors


@torch.no_grad()
def average_with_start(network: nn.Module, network_file: Path | str | None, share: float) -> None:
    """Give the start this share in the final weights and BatchNorm statistics (Wortsman et al. 2022, WiSE-FT).

    A few labelled patients show few scanners and few hearts. The average keeps what the start knew about all others.
    """
    if network_file is None or share == 0:
        return
    start, _ = read_tensors(network_file)
    for name, tensor in network.state_dict().items():
        if name in start and tensor.is_floating_point() and start[name].shape == tensor.shape:
            tensor.lerp_(start[name].to(tensor.device), share)
