"""The device for training and inference: the GPU if there is one."""

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from fclseg.errors import FCLSegError

if TYPE_CHECKING:
    import torch

BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
"""torch's names for the CPU instructions that compute in bfloat16."""


def computes_in_bfloat16(device: "torch.device", on_cpu: bool) -> bool:
    """Whether training uses mixed precision: on every GPU that supports it, and on CPUs only if ``on_cpu``."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return on_cpu and any(torch.cpu.get_capabilities().get(name, False) for name in BFLOAT16)


def choose_device(name: str | None = None) -> "torch.device":
    """The named device; by default the first GPU, or else the CPU. Raises if the device does not exist."""
    import torch  # imported here, because commands that only read settings should not wait for torch

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


def processor() -> str:
    """The model of the processor, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
