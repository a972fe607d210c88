"""Files of encoders and of whole networks, which pre-training writes and fine-tuning loads.

A file contains the tensors of one encoder under ``encoder.*``, for a whole network also those under ``decoder.*``, and
a few strings (preset, widths, run, round) that say where it came from. A file that does not fit the network exactly is
refused, because silently loading half an encoder would look like a pre-training that does not help.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from fclseg.errors import FCLSegError
from fclseg.files import whole_file
from fclseg.networks.interface import widths

PREFIX = "encoder."
HEAD = "decoder.head."
"""The last layer, the only one that depends on what the network predicts."""

State = dict[str, torch.Tensor]
"""A module's tensors by name."""


@dataclass(frozen=True)
class LoadReport:
    """Which tensors of a file and a network match, by their names in the file."""

    matched: tuple[str, ...]
    missing: tuple[str, ...]  # in the network, not in the file
    unexpected: tuple[str, ...]  # in the file, not in the network

    def __str__(self) -> str:
        return f"{len(self.matched)} matched, {len(self.missing)} missing, {len(self.unexpected)} unexpected"


def write_tensors(path: Path | str, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, object]) -> None:
    """Write a safetensors file in one step: after a crash there is the old file or the new one, never half of one."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with whole_file(path) as draft:
        draft.write_bytes(_sorted_header(save(plain, {key: str(value) for key, value in metadata.items()})))


def _sorted_header(content: bytes) -> bytes:
    """The same file with sorted metadata: safetensors orders them at random, but equal runs should give equal files."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def read_tensors(path: Path | str) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file. A missing or broken file gives a one-sentence error."""
    path = Path(path)
    if not path.is_file():
        raise FCLSegError(f"there is no weights file {path}: check the path, or train one first")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FCLSegError(f"{path} is not a readable safetensors file ({error}): get or train it again") from error


def format_channels(channels: tuple[int, ...]) -> str:
    return "-".join(str(width) for width in channels)


def save_encoder(path: Path | str, encoder: nn.Module, metadata: Mapping[str, object]) -> None:
    """Write the encoder's tensors as ``encoder.*``. Its widths are added to the metadata."""
    tensors = {PREFIX + name: tensor for name, tensor in encoder.state_dict().items()}
    write_tensors(path, tensors, {"channels": format_channels(widths(encoder)), **metadata})


def load_encoder(network: nn.Module, path: Path | str) -> LoadReport:
    """Copy an encoder file into ``network.encoder``. Anything but an exact fit raises and changes nothing."""
    return _fill_encoder(network, path, *read_tensors(path))


def load_encoder_of(network: nn.Module, path: Path | str) -> LoadReport:
    """Copy the encoder of a whole network's file into ``network.encoder``."""
    tensors, metadata = read_tensors(path)
    return _fill_encoder(network, path, {n: t for n, t in tensors.items() if n.startswith(PREFIX)}, metadata)


def _fill_encoder(network: nn.Module, path: Path | str, tensors: State, metadata: Mapping[str, str]) -> LoadReport:
    encoder = network.get_submodule("encoder")
    wanted = {PREFIX + name: tensor for name, tensor in encoder.state_dict().items()}
    report = compare(tensors, wanted)
    if report.missing or report.unexpected:
        ours = format_channels(widths(encoder))
        theirs = metadata.get("channels", "unknown widths")
        wrong = (report.missing + report.unexpected)[0]
        raise FCLSegError(
            f"encoder file {path} ({theirs}, preset {metadata.get('preset', 'unknown')}) does not fit the network "
            f"({ours}): {report}, first '{wrong}'; choose the preset it was pre-trained with"
        )
    encoder.load_state_dict({name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()})
    return report


def save_network(path: Path | str, network: nn.Module, metadata: Mapping[str, object]) -> None:
    """Write a whole network as ``encoder.*`` and ``decoder.*``."""
    write_tensors(
        path, network.state_dict(), {"channels": format_channels(widths(network.get_submodule("encoder"))), **metadata}
    )


def load_network(network: nn.Module, path: Path | str) -> LoadReport:
    """Copy a whole network (also a segmentation model) into ``network``.

    A head that predicts something else, for example motion, is left out and reported as missing. Any other difference
    raises and changes nothing.
    """
    tensors, metadata = read_tensors(path)
    wanted = network.state_dict()
    report = compare(tensors, wanted)
    wrong = [name for name in report.missing + report.unexpected if not name.startswith(HEAD)]
    if wrong:
        hint = (
            "pass it as an encoder" if not any(name.startswith("decoder.") for name in tensors) else "choose its preset"
        )
        raise FCLSegError(
            f"network file {path} ({metadata.get('channels', 'unknown widths')}, preset "
            f"{metadata.get('preset', 'unknown')}) does not fit the network "
            f"({format_channels(widths(network.get_submodule('encoder')))}): {report}, first '{wrong[0]}'; {hint}"
        )
    network.load_state_dict({name: tensors[name] for name in report.matched}, strict=False)
    return report


def compare(tensors: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> LoadReport:
    """A tensor of a different shape counts as missing, because it cannot be loaded."""
    matched = tuple(n for n, t in wanted.items() if n in tensors and tensors[n].shape == t.shape)
    return LoadReport(
        matched=matched,
        missing=tuple(name for name in wanted if name not in matched),
        unexpected=tuple(name for name in tensors if name not in wanted),
    )
