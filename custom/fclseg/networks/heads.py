"""Projector and predictor, and the encoder with projector, which the paper calls a network."""

import torch
from torch import nn

from fclseg.networks.interface import EncoderFactory, build_encoder
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset


def mlp(in_size: int, hidden: int, out_size: int) -> nn.Sequential:
    """Linear-BatchNorm-ReLU-Linear, the shape of projector and predictor (``paper``: 384-2048-384)."""
    return nn.Sequential(
        nn.Linear(in_size, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, out_size)
    )


class EncoderNetwork(nn.Module):
    """Encoder, global average pooling and projector: image [B, 1, H, W] -> one feature vector [B, D]."""

    def __init__(self, preset: Preset, encoder: EncoderFactory = Encoder):
        super().__init__()
        self.encoder = build_encoder(encoder, preset.networks.channels, preset.networks.patch)
        self.projector = mlp(preset.networks.feature_size, preset.networks.hidden, preset.networks.feature_size)

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        """The pooled encoder output, before the projector. Fine-tuning later builds on these features."""
        return self.encoder(x)[-1].mean(dim=(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.projector(self.embed(x))
