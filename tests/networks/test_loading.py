"""Encoder files: exact fit or refusal."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from fclseg.errors import FCLSegError
from fclseg.networks.heads import EncoderNetwork
from fclseg.networks.loading import (
    load_encoder,
    load_network,
    read_tensors,
    save_encoder,
    save_network,
    write_tensors,
)
from fclseg.networks.unet import UNet
from fclseg.presets import get_preset

CHANNELS = (4, 8, 12, 16)


@pytest.fixture
def encoder_file(tmp_path):
    path = tmp_path / "runs" / "encoder.safetensors"
    encoder = UNet(CHANNELS, 4).encoder
    save_encoder(path, encoder, {"preset": "tiny", "round": 7})
    return path, encoder


def test_saved_encoder_arrives_in_another_network_and_leaves_its_decoder_alone(encoder_file):
    path, encoder = encoder_file
    network = UNet(CHANNELS, 3)
    decoder = {name: tensor.clone() for name, tensor in network.decoder.state_dict().items()}
    report = load_encoder(network, path)
    assert len(report.matched) == len(encoder.state_dict()) and not report.missing and not report.unexpected
    assert str(report) == f"{len(report.matched)} matched, 0 missing, 0 unexpected"
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(network.encoder.state_dict()[name], tensor), name
    for name, tensor in decoder.items():
        assert torch.equal(network.decoder.state_dict()[name], tensor), name


def test_metadata_says_where_the_encoder_came_from(encoder_file):
    tensors, metadata = read_tensors(encoder_file[0])
    assert metadata == {"channels": "4-8-12-16", "preset": "tiny", "round": "7"}
    assert all(name.startswith("encoder.") for name in tensors)


def test_pretraining_network_takes_an_encoder_too(tmp_path):
    network = EncoderNetwork(get_preset("demo"))
    save_encoder(tmp_path / "e.safetensors", network.encoder, {})
    segmenter = UNet(get_preset("demo").networks.channels, 4)
    load_encoder(segmenter, tmp_path / "e.safetensors")
    image = torch.rand(2, 1, 48, 48)
    assert torch.equal(network.eval().encoder(image)[-1], segmenter.eval().encoder(image)[-1])


@pytest.mark.parametrize("channels", [(4, 8, 12, 24), (4, 8, 12), (4, 8, 12, 16, 20)])
def test_other_widths_or_depths_are_refused_and_change_nothing(encoder_file, channels):
    network = UNet(channels, 4)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(FCLSegError, match=r"4-8-12-16, preset tiny.*does not fit.*matched.*missing.*unexpected"):
        load_encoder(network, encoder_file[0])
    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("change", ["drop", "add", "reshape"])
def test_a_single_wrong_tensor_is_refused_by_name(encoder_file, tmp_path, change):
    tensors = load_file(encoder_file[0])
    wrong = sorted(tensors)[0]
    if change == "drop":
        del tensors[wrong]
    elif change == "add":
        wrong = "encoder.extra.weight"
        tensors[wrong] = torch.zeros(3)
    else:
        tensors[wrong] = torch.zeros(99)
    save_file(tensors, tmp_path / "wrong.safetensors")
    with pytest.raises(FCLSegError, match=wrong):
        load_encoder(UNet(CHANNELS, 4), tmp_path / "wrong.safetensors")


def test_missing_and_broken_files_are_one_sentence(tmp_path):
    with pytest.raises(FCLSegError, match="there is no weights file"):
        load_encoder(UNet(CHANNELS, 4), tmp_path / "none.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"not tensors")
    with pytest.raises(FCLSegError, match=r"broken\.safetensors is not a readable"):
        load_encoder(UNet(CHANNELS, 4), tmp_path / "broken.safetensors")


def test_writing_again_replaces_the_file_and_leaves_no_scraps(encoder_file):
    path, _ = encoder_file
    save_encoder(path, UNet((2, 4), 2).encoder, {})
    assert read_tensors(path)[1]["channels"] == "2-4"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_equal_tensors_and_metadata_give_equal_files(tmp_path):
    metadata = {f"key {number}": "é" * number for number in range(12)}
    for name in ("a", "b", "c"):
        write_tensors(tmp_path / name, {"w": torch.arange(5.0), "n": torch.tensor(3)}, metadata)
    assert len({(tmp_path / name).read_bytes() for name in ("a", "b", "c")}) == 1
    tensors, found = read_tensors(tmp_path / "a")
    assert found == metadata and torch.equal(tensors["w"], torch.arange(5.0)) and tensors["n"] == 3


@pytest.fixture
def network_file(tmp_path):
    network = UNet(CHANNELS, 4)
    save_network(tmp_path / "network.safetensors", network, {"preset": "tiny"})
    return tmp_path / "network.safetensors", network


def test_a_whole_network_arrives_whole(network_file):
    path, saved = network_file
    network = UNet(CHANNELS, 4)
    report = load_network(network, path)
    assert len(report.matched) == len(saved.state_dict()) and not report.missing and not report.unexpected
    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in saved.state_dict().items())


def test_a_head_for_something_else_is_left_out_and_said(network_file):
    path, saved = network_file
    network = UNet(CHANNELS, 3)
    head = network.decoder.head.weight.clone()
    report = load_network(network, path)
    assert report.missing == ("decoder.head.weight", "decoder.head.bias") and not report.unexpected
    assert torch.equal(network.decoder.head.weight, head)
    assert torch.equal(network.decoder.up[0].convs.conv_0.conv.weight, saved.decoder.up[0].convs.conv_0.conv.weight)


def test_a_network_of_other_widths_and_an_encoder_are_refused(network_file, encoder_file):
    network = UNet((4, 8, 12, 24), 4)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(FCLSegError, match=r"4-8-12-16, preset tiny.*does not fit.*4-8-12-24.*choose its preset"):
        load_network(network, network_file[0])
    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in before.items())
    with pytest.raises(FCLSegError, match="pass it as an encoder"):
        load_network(UNet(CHANNELS, 4), encoder_file[0])
