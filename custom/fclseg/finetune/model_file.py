"""The trained segmentation network as one file that knows how to be used: ``model.safetensors``."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fclseg.errors import FCLSegError
from fclseg.finetune.handlers import CHECKPOINT
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.loading import format_channels, read_tensors, write_tensors

MODEL = "model.safetensors"
KIND = "segmentation model"


@dataclass(frozen=True)
class TrainedModel:
    """A fine-tuned network and what inference must know about it. No patient is named in the file."""

    network: FreezableUNet
    structures: tuple[str, ...]
    image_size: int
    spacing: float  # in-plane pixel size the network was trained at, mm
    layout: str
    preset: str


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
    metadata = {
        "fclseg": KIND,
        "trained": True,
        "preset": preset,
        "channels": format_channels(network.encoder.channels),
        "structures": json.dumps(list(structures)),
        "layout": layout,
        "image_size": image_size,
        "spacing_mm": spacing,
    }
    write_tensors(path, network.state_dict(), metadata)
    (path.parent / CHECKPOINT).unlink(missing_ok=True)
    print(f"model written to {path}")


HOW_TO_TRAIN = (
    "fine-tune one first with `python -m monai.bundle run --config_file .../configs/train.json --dataset_dir DATA "
    "--output_dir DIR` and pass `--checkpoint DIR/model.safetensors`"
)


def load_model(path: str, layout: str) -> TrainedModel:
    """Read a model file; weights that are missing, were never fine-tuned or segment something else are refused."""
    if not Path(path).is_file():
        raise FCLSegError(f"there are no segmentation weights at {path}: {HOW_TO_TRAIN}")
    tensors, metadata = read_tensors(path)
    if metadata.get("fclseg") != KIND or metadata.get("trained") != "True":
        kind = "a pre-trained encoder" if "channels" in metadata else "not a model file of this project"
        raise FCLSegError(f"{path} is {kind} and was never fine-tuned to segment: {HOW_TO_TRAIN}")
    if metadata["layout"] != layout:
        raise FCLSegError(
            f"{path} segments the structures of {metadata['layout']}, not of {layout}: use the bundle for that data set"
        )
    structures = tuple(json.loads(metadata["structures"]))
    channels = [int(width) for width in metadata["channels"].split("-")]
    network = FreezableUNet(channels, len(structures) + 1)
    network.load_state_dict(tensors)
    return TrainedModel(
        network=network.eval(),
        structures=structures,
        image_size=int(metadata["image_size"]),
        spacing=float(metadata["spacing_mm"]),
        layout=metadata["layout"],
        preset=metadata["preset"],
    )
