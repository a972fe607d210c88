"""The end of a training: its network becomes ``model.safetensors``."""

from collections.abc import Sequence
from pathlib import Path

from fclseg.finetune.handlers import CHECKPOINT
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.model_file import MODEL, TrainedModel, write_model


def save_model(
    output_dir: str | None,
    network: FreezableUNet,
    *,
    structures: Sequence[str],
    preset: str,
    layout: str,
    image_size: int,
    spacing: float,
) -> None:
    """Write ``model.safetensors`` (nothing without a folder); the training is finished, so its resume point goes."""
    if output_dir is None:
        return
    path = Path(output_dir) / MODEL
    write_model(path, TrainedModel(network, tuple(structures), image_size, spacing, layout, preset))
    (path.parent / CHECKPOINT).unlink(missing_ok=True)
    print(f"model written to {path}")
