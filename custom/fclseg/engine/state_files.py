"""State files: written atomically, and refused if they are not exactly what was written."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fclseg.errors import FCLSegError
from fclseg.networks.loading import State, read_tensors, write_tensors

KEPT_CHECKPOINTS = 2
"""The number of checkpoints the server keeps, so that a damaged one can be deleted."""


class StateError(FCLSegError):
    """Raised for a state file that must not be used."""


def write_state(path: Path, states: Mapping[str, State], info: Mapping[str, Any]) -> None:
    """Write {part: {name: tensor}} and a description atomically, with a checksum over both."""
    tensors = {f"{part}/{name}": tensor for part, state in states.items() for name, tensor in state.items()}
    text = json.dumps(info, sort_keys=True)
    write_tensors(path, tensors, {"info": text, "checksum": _checksum(tensors, text)})


def read_state(path: Path) -> tuple[dict[str, State], dict[str, Any]]:
    """Read what ``write_state`` wrote. Raises ``StateError`` for a damaged file."""
    try:
        tensors, metadata = read_tensors(path)
    except FCLSegError as error:
        raise StateError(f"the state file {path} is damaged and is not used: delete it or restore a backup") from error
    text = metadata.get("info", "")
    if metadata.get("checksum") != _checksum(tensors, text):
        raise StateError(f"the state file {path} fails its checksum and is not used: delete it or restore a backup")
    states: dict[str, State] = {}
    for key, tensor in tensors.items():
        part, name = key.split("/", 1)
        states.setdefault(part, {})[name] = tensor
    return states, json.loads(text)


def _checksum(tensors: Mapping[str, torch.Tensor], text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
