"""``model.pt`` beside a model: only the weights, because MONAI's ``ckpt_export`` and MONAI Label read no other file.

It is made when somebody needs it, so that the repository and the wheel contain each set of weights once.
"""

import pickle
from pathlib import Path

import torch

from fclseg.files import whole_file
from fclseg.networks.loading import State, read_tensors


def plain_weights(model: Path) -> Path:
    """The ``model.pt`` of a ``model.safetensors``, written unless it already has the same weights."""
    path = model.with_suffix(".pt")
    tensors, _ = read_tensors(model)
    if not _has(path, tensors):
        with whole_file(path) as draft:
            torch.save(tensors, draft)
    return path


def _has(path: Path, tensors: State) -> bool:
    try:
        there = torch.load(path, weights_only=True)
        return there.keys() == tensors.keys() and all(torch.equal(there[name], tensors[name]) for name in tensors)
    except (OSError, RuntimeError, EOFError, AttributeError, TypeError, pickle.UnpicklingError):
        return False
