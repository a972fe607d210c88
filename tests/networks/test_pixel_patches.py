"""Networks that take several pixels together: the same layers on a coarser grid, and a class for every pixel."""

import pytest
import torch

from fclseg.anatomy.registry import get_anatomy
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.model_file import TrainedModel, load_model, write_model
from fclseg.networks.unet import Encoder, UNet
from fclseg.presets import get_preset


def by_hand(image: torch.Tensor, patch: int) -> torch.Tensor:
    """Channel p * i + j holds the pixels in row i and column j of each patch."""
    return torch.cat([image[:, :, i::patch, j::patch] for i in range(patch) for j in range(patch)], dim=1)


@pytest.mark.parametrize("patch", [2, 3])
def test_patches_become_channels_and_classes_come_back_to_their_pixels(patch):
    torch.manual_seed(0)
    network = UNet((4, 8), classes=3, patch=patch).eval()
    image = torch.randn(2, 1, 4 * patch, 6 * patch)
    maps = [network.encoder.stem(by_hand(image, patch))]
    maps.append(network.encoder.down[0](maps[0]))
    scores = network.decoder.head(network.decoder.up[0](maps[1], maps[0]))
    found = network(image)
    assert found.shape == (2, 3, 4 * patch, 6 * patch)
    for i in range(patch):
        for j in range(patch):
            own = scores[:, patch * i + j :: patch**2]  # class k of this pixel is channel k * p² + p * i + j
            torch.testing.assert_close(found[:, :, i::patch, j::patch], own)


def test_without_patches_nothing_changes():
    torch.manual_seed(1)
    encoder, image = Encoder((4, 8)), torch.randn(1, 1, 8, 8)
    torch.testing.assert_close(encoder(image)[0], encoder.stem(image))


def test_a_model_file_remembers_its_patches(tmp_path):
    preset = get_preset("standard")
    network = FreezableUNet((4, 8), 4, patch=preset.networks.patch).eval()
    write_model(tmp_path / "m.safetensors", TrainedModel(network, get_anatomy("acdc"), 32, 1.5, "standard"))
    loaded, image = load_model(tmp_path / "m.safetensors"), torch.randn(1, 1, 32, 32)
    assert torch.equal(loaded.network(image), network(image))
