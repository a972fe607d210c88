"""The bundles' network at the start of a training: pre-trained encoder and learning rates."""

from typing import Any

import torch

from fclseg.errors import FCLSegError
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.loading import load_encoder, load_network
from fclseg.networks.model_file import segments
from fclseg.networks.unet import UNet
from fclseg.presets import Preset


def pretrained(
    network: FreezableUNet, encoder_file: str | None, network_file: str | None, device: torch.device
) -> FreezableUNet:
    """The network on its device, with the pre-trained encoder or the whole pre-trained network if one is given.

    The channels-last memory format makes a training step on the CPU about a third faster and changes nothing else.
    """
    if encoder_file and network_file:
        raise FCLSegError("give pretrained_encoder or pretrained_network, not both: a network includes its own encoder")
    if encoder_file:
        print(f"encoder {encoder_file}: {load_encoder(network, encoder_file)}")
    if network_file:
        print(f"network {network_file}: {load_network(network, network_file)}")
    network.to(device)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def settings_for(preset: Preset, network_file: str | None) -> Preset:
    """The preset's settings for a training from this network: one that segments already learns less and slower."""
    return preset.from_model() if network_file and segments(network_file) else preset


def parameter_groups(network: UNet, lr: float, encoder_lr_factor: float) -> list[dict[str, Any]]:
    """Encoder and decoder with separate learning rates: a lower one for the encoder preserves more pre-training."""
    return [
        {"params": list(network.encoder.parameters()), "lr": lr * encoder_lr_factor},
        {"params": list(network.decoder.parameters()), "lr": lr},
    ]
