"""The network of the bundles as a training starts with it: pre-trained encoder and learning rates."""

import torch

from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.loading import load_encoder
from fclseg.networks.unet import UNet


def with_encoder(network: FreezableUNet, pretrained_encoder: str | None, device: torch.device) -> FreezableUNet:
    """The network on its device, with the pre-trained encoder when there is one.

    Channels-last memory makes a training step on the CPU about a third cheaper and changes nothing else.
    """
    if pretrained_encoder:
        report = load_encoder(network, pretrained_encoder)
        print(f"encoder {pretrained_encoder}: {report}")
    return network.to(device, memory_format=torch.channels_last)


def parameter_groups(network: UNet, lr: float, encoder_lr_factor: float) -> list[dict]:
    """Encoder and decoder with their own learning rates: a lower one lets more of the pre-training survive."""
    return [
        {"params": list(network.encoder.parameters()), "lr": lr * encoder_lr_factor},
        {"params": list(network.decoder.parameters()), "lr": lr},
    ]
