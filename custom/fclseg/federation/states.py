"""The wire format: a component as a dictionary of numpy arrays, and the checks on it.

Arrays are numpy (float32 for weights), which every NVFlare party decodes without a registered decomposer. Torch tensors
are converted only here.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fclseg.errors import PublicError

if TYPE_CHECKING:
    import torch

Arrays = dict[str, np.ndarray]

SCALAR_BYTES = 8
"""The size in bytes of the only number that is sent, the distance."""

VARIANCE, COUNTER = "running_var", "num_batches_tracked"
STATISTICS = ("running_mean", VARIANCE, COUNTER)
"""Suffixes of BatchNorm's buffers. They are not parameters and therefore not part of any distance."""

MOST_COUNTED = 10**9
"""The maximum of a counter, such as BatchNorm's number of batches."""


def to_arrays(state: Mapping[str, "torch.Tensor"]) -> Arrays:
    """A component's tensors as contiguous arrays that share no memory with the network."""
    import torch  # imported here, because settings and studies use this module without training anything

    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format).numpy()
        for name, tensor in state.items()
    }


def to_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, "torch.Tensor"]:
    """The arrays as tensors that own their memory, because received arrays may be read-only."""
    import torch

    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def array_bytes(arrays: Mapping[str, np.ndarray]) -> int:
    """All bytes of a component."""
    return sum(array.nbytes for array in arrays.values())


def parameter_names(state: Iterable[str]) -> list[str]:
    """The names of parameters, in order: all except BatchNorm's running statistics and counters."""
    return [name for name in state if name.rsplit(".", 1)[-1] not in STATISTICS]


def check_state(state: Mapping[str, np.ndarray], like: Mapping[str, np.ndarray], site: str, component: str) -> None:
    """Refuse a component whose tensors, shapes or dtypes differ from ``like``, or with non-finite values."""
    where = f"{site or 'a site'}: component '{component}'"
    if different := sorted(set(state) ^ set(like)):
        fault = "lacks" if different[0] in like else "brings an unknown"
        raise PublicError(f"{where} {fault} tensor '{different[0]}': run the same version and preset at every site")
    for name, expected in like.items():
        array = state[name]
        if not isinstance(array, np.ndarray) or array.shape != expected.shape or array.dtype != expected.dtype:
            raise PublicError(
                f"{where} has tensor '{name}' as {_describe(array)} instead of {_describe(expected)}: "
                "run the same preset at every site"
            )
        if array.dtype.kind in "iu" and array.size and (array.min() < 0 or array.max() > MOST_COUNTED):
            raise PublicError(f"{where} has counters in tensor '{name}' that are not counts: its update is not used")
        if name.rsplit(".", 1)[-1] == VARIANCE and array.size and array.min() < 0:
            raise PublicError(f"{where} has negative variances in tensor '{name}': its update is not used")
        if array.dtype.kind == "f" and not is_finite(array):
            raise PublicError(
                f"{where} has values in tensor '{name}' that are not finite: its update is not used; "
                "lower the learning rate or check the site's images"
            )


def is_finite(array: np.ndarray) -> bool:
    """Whether all numbers are finite. If one is not, neither is the sum of squares, which is the fastest to compute."""
    flat = array.reshape(-1)
    return math.isfinite(np.dot(flat, flat)) or bool(np.isfinite(array).all())


def _describe(array: object) -> str:
    return f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
