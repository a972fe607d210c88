"""Any module that implements the interface can replace the encoder, in every method and in fine-tuning."""

import pytest
import torch
from torch import nn

from fclseg.anatomy.registry import ANATOMIES
from fclseg.errors import FCLSegError
from fclseg.finetune.train import FinetuneSpec
from fclseg.methods.exchange import ROWS
from fclseg.methods.registry import build_method
from fclseg.methods.training import make_optimizer, train_round
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.interface import EncoderInterface, build_encoder
from fclseg.networks.loading import load_encoder, save_encoder
from fclseg.networks.model_file import TrainedModel, load_model, write_model
from fclseg.networks.unet import Encoder
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset
from fclseg.study.fixed_training import train_fixed

WIDTHS = (4, 6, 10)
PRESET = get_preset("demo", **{"networks.channels": WIDTHS, "bank_size": 24, "local_epochs": 1})


class Strided(nn.Module):
    """Three plain convolutions, two of them strided: only the interface is that of the paper's encoder."""

    def __init__(self, channels):
        super().__init__()
        self.channels = tuple(channels)
        widths = zip((1, *channels), channels, strict=False)
        self.steps = nn.ModuleList(nn.Conv2d(i, o, 3, 1 + (i > 1), padding=1) for i, o in widths)

    def forward(self, x):
        maps = []
        for step in self.steps:
            x = torch.relu(step(x))
            maps.append(x)
        return maps


def test_the_papers_encoder_keeps_to_the_interface():
    encoder = build_encoder(Encoder, (8, 16))
    assert isinstance(encoder, EncoderInterface) and isinstance(encoder, Encoder)
    assert [tuple(one.shape) for one in encoder(torch.rand(2, 1, 32, 32))] == [(2, 8, 32, 32), (2, 16, 16, 16)]


@pytest.mark.parametrize("job", ROWS)
def test_every_method_trains_another_encoder(job, phantom_sampler):
    method = build_method(job, PRESET, 0, encoder=Strided)
    encoder = method.online.encoder
    assert isinstance(encoder, Strided)
    before = [parameter.detach().clone() for parameter in encoder.parameters()]
    optimizer = make_optimizer(method)
    train_round(method, phantom_sampler(method), optimizer, lr=1e-3, epochs=1, seed=0, site="a", round_number=0)
    assert all(not torch.equal(old, new) for old, new in zip(before, encoder.parameters(), strict=True))


def test_an_encoder_of_other_widths_is_refused():
    with pytest.raises(FCLSegError, match=r"Strided has the widths \(4, 6\), but the preset has \(4, 6, 10\)"):
        build_method("fclopt", PRESET, 0, encoder=lambda channels: Strided(channels[:2]))


def test_what_is_no_encoder_is_refused():
    with pytest.raises(FCLSegError, match="Linear is not an encoder: give it 'channels' and 'forward'"):
        build_encoder(lambda channels: nn.Linear(1, 1), WIDTHS)


def test_another_encoder_is_fine_tuned_and_found_again(tmp_path, monkeypatch):
    """Pre-trained file -> bundle -> model file -> network, all with the same encoder; the paper's does not fit it."""
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
    write_phantom(tmp_path / "data", patients=2, frames=2)
    pretrained = Strided(WIDTHS)
    save_encoder(tmp_path / "encoder.safetensors", pretrained, {"preset": "demo"})
    network = FreezableUNet(WIDTHS, 4, encoder=Strided)
    spec = FinetuneSpec(
        tmp_path / "data",
        ("patient001",),
        ("patient002",),
        preset="demo",
        pretrained_encoder=tmp_path / "encoder.safetensors",
        freeze_encoder=True,
        overrides={"network_def": network, "epochs": 2},
    )
    trained = train_fixed(spec).evaluator.network
    for name, tensor in pretrained.state_dict().items():
        assert torch.equal(trained.encoder.state_dict()[name], tensor)
    path = tmp_path / "model.safetensors"
    write_model(path, TrainedModel(trained, ANATOMIES["acdc"], 48, 3.75, "demo"))
    images = torch.rand(2, 1, 48, 48)
    torch.testing.assert_close(load_model(path, encoder=Strided).network(images), trained.eval()(images))
    with pytest.raises(FCLSegError, match="was trained with a different encoder"):
        load_model(path)
    with pytest.raises(FCLSegError, match="does not fit the network"):
        load_encoder(FreezableUNet(WIDTHS, 4), tmp_path / "encoder.safetensors")
