"""What crosses the wire: a component as a dictionary of numpy arrays, and the checks that guard it.

The wire format is numpy (float32 for weights): every NVFlare end decodes it without a registered decomposer. Torch
tensors are converted to and from it only here.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fclseg.errors import PublicError

if TYPE_CHECKING:
    import torch

Arrays = dict[str, np.ndarray]

SCALAR_BYTES = 8
"""The size of the one number that crosses, the distance."""

VARIANCE, COUNTER = "running_var", "num_batches_tracked"
STATISTICS = ("running_mean", VARIANCE, COUNTER)
"""The last part of the names of BatchNorm's buffers: not parameters, so not part of any distance."""

MOST_COUNTED = 10**9
"""The largest value of a counter, such as BatchNorm's number of batches."""


def to_arrays(state: Mapping[str, "torch.Tensor"]) -> Arrays:
    """A component's tensors as contiguous arrays that share no memory with the network."""
    import torch  # here, because settings and studies read this module without training anything

    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format).numpy()
        for name, tensor in state.items()
    }


def to_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, "torch.Tensor"]:
    """The arrays as tensors that own their memory (what arrives from the wire may be read-only)."""
    import torch

    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def array_bytes(arrays: Mapping[str, np.ndarray]) -> int:
    """All bytes of a component."""
    return sum(array.nbytes for array in arrays.values())


def parameter_names(state: Iterable[str]) -> list[str]:
    """The names that are parameters, in order: all but BatchNorm's running statistics and counters."""
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
        if np.issubdtype(array.dtype, np.integer) and array.size and (array.min() < 0 or array.max() > MOST_COUNTED):
            raise PublicError(f"{where} has counters in tensor '{name}' that are no counts: its update is not used")
        if name.rsplit(".", 1)[-1] == VARIANCE and array.size and array.min() < 0:
            raise PublicError(f"{where} has negative variances in tensor '{name}': its update is not used")
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise PublicError(
                f"{where} has values in tensor '{name}' that are not finite: its update is not used; "
                "lower the learning rate or look at the site's images"
            )


def _describe(array: object) -> str:
    return f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
