"""Where networks are trained and applied: on the GPU when there is one."""

from typing import TYPE_CHECKING

from fclseg.errors import FCLSegError

if TYPE_CHECKING:
    import torch


def choose_device(name: str | None = None) -> "torch.device":
    """The device of this name, or else the first GPU, or else the CPU; one that is not there is refused."""
    import torch  # here, because a place's settings are read by commands that should not wait for torch

    count = {"cpu": 1, "cuda": torch.cuda.device_count()}
    if name is None:
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or (device.index or 0) >= count.get(device.type, 0):
        raise FCLSegError(
            f"there is no device '{name}' on this machine ({count['cuda']} GPUs): set FCLSEG_DEVICE to cpu or cuda"
        )
    return device
