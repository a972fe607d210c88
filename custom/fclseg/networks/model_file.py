"""The trained segmentation network in one file with everything inference needs: ``model.safetensors``.

Local and federated fine-tuning write it; inference reads it.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.registry import ANATOMIES, get_anatomy
from fclseg.anatomy.registry import reference as reference_of
from fclseg.errors import FCLSegError
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.interface import EncoderFactory, widths
from fclseg.networks.loading import State, compare, format_channels, read_tensors, write_tensors
from fclseg.networks.unet import Encoder

MODEL = "model.safetensors"
KIND = "segmentation model"


@dataclass(frozen=True)
class TrainedModel:
    """A fine-tuned network and what inference must know about it. The file contains no patient names."""

    network: FreezableUNet
    anatomy: Anatomy
    image_size: int
    spacing: float  # in-plane pixel size the network was trained at, mm
    preset: str
    about: str = ""  # where the weights come from, for people


def write_model(path: Path | str, model: TrainedModel) -> None:
    """Write the network with everything that inference needs."""
    metadata = {
        "fclseg": KIND,
        "trained": True,
        "preset": model.preset,
        "channels": format_channels(widths(model.network.encoder)),
        "anatomy": json.dumps(reference_of(model.anatomy)),
        "patch": model.network.decoder.patch,
        "image_size": model.image_size,
        "spacing_mm": model.spacing,
    } | ({"about": model.about} if model.about else {})
    write_tensors(path, model.network.state_dict(), metadata)


def segments(path: Path | str) -> bool:
    """Whether a file contains a segmentation network and not one that predicts something else."""
    return read_tensors(path)[1].get("fclseg") == KIND


HOW_TO_TRAIN = (
    "fine-tune one first with `python -m monai.bundle run --config_file .../configs/train.json --dataset_dir DATA "
    "--output_dir DIR` and pass `--checkpoint DIR/model.safetensors`"
)


def load_model(path: str | Path, anatomy: str | None = None, encoder: EncoderFactory = Encoder) -> TrainedModel:
    """Read a model file. Raises if weights are missing, were never fine-tuned or segment something else.

    Without ``anatomy``, any anatomy is accepted. ``encoder`` is the one that the model was trained with.
    """
    if not Path(path).is_file():
        raise FCLSegError(
            f"{path}: there is no such model file; check the path, or, if you run a bundle from another folder, give "
            "the bundle's own folder as --bundle_root"
        )
    tensors, metadata = read_tensors(path)
    if metadata.get("fclseg") != KIND or metadata.get("trained") != "True":
        kind = "a pre-trained encoder" if "channels" in metadata else "not a model file of this project"
        raise FCLSegError(f"{path} is {kind} and was never fine-tuned to segment: {HOW_TO_TRAIN}")
    try:
        return _model(Path(path), tensors, metadata, anatomy, encoder)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError, RuntimeError, MemoryError):
        raise FCLSegError(f"{path}: its description is damaged; get or train the model again") from None


def _model(
    path: Path, tensors: State, metadata: dict[str, str], anatomy: str | None, encoder: EncoderFactory
) -> TrainedModel:
    reference = json.loads(metadata["anatomy"])
    if not isinstance(reference, dict) and reference not in ANATOMIES:
        raise ValueError(reference)
    found = get_anatomy(reference)
    if anatomy is not None and found.name != anatomy:
        raise FCLSegError(
            f"{path} segments {found.title}, not {get_anatomy(anatomy).title}: use the bundle {found.bundle}"
        )
    channels = [int(width) for width in metadata["channels"].split("-")]
    patch = int(metadata.get("patch", 1))
    network = FreezableUNet(channels, found.classes, encoder=encoder, patch=patch)
    expected = network.state_dict()
    report = compare(tensors, expected)
    if report.missing or report.unexpected:
        raise FCLSegError(f"{path} was trained with a different encoder ({report}): load it with that one")
    for name, tensor in tensors.items():
        if tensor.dtype != expected[name].dtype or not tensor.isfinite().all():
            raise FCLSegError(f"{path}: the weights '{name}' are not finite floats; get or train the model again")
    network.load_state_dict(tensors)
    size, spacing = int(metadata["image_size"]), float(metadata["spacing_mm"])
    if not 8 <= size <= 4096 or not 0.05 <= spacing <= 50:
        raise FCLSegError(
            f"{path}: images of {size} pixels of {spacing} mm are impossible; get or train the model again"
        )
    return TrainedModel(network.eval(), found, size, spacing, metadata["preset"], metadata.get("about", ""))
