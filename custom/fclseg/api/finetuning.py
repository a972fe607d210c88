"""Fine-tuning from Python, the same as ``fclseg finetune``: the training of the anatomy's bundle."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.registry import ANATOMIES, DEFAULT
from fclseg.finetune.evaluation import Evaluation
from fclseg.finetune.network import settings_for
from fclseg.finetune.run import FinetuneSpec, train
from fclseg.methods.exchange import SHIPPED
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.model_file import MODEL
from fclseg.presets import Preset, get_preset
from fclseg.resources import shipped_model


@dataclass(frozen=True)
class Finetuned:
    """A model file, its scores on the held-out patients, and the loss of each epoch."""

    model: Path
    evaluation: Evaluation
    losses: list[float]


def finetune(
    data: Path | str,
    out: Path | str,
    encoder: Path | str | None = None,
    *,
    network: Path | str | None = None,
    labels: int | None = None,
    hold_out: bool = True,
    train_patients: tuple[str, ...] | None = None,
    validation_patients: tuple[str, ...] | None = None,
    preset: Preset | str = "small",
    epochs: int | None = None,
    seed: int = 0,
    architecture: EncoderFactory | None = None,
) -> Finetuned:
    """Fine-tune on a folder's labelled patients until the loss has converged, and score on the images' own grid.

    Args:
        encoder: a pre-trained encoder to start from; random weights by default.
        network: a whole network to start from instead, or "shipped" for the weights of the bundle. A network that
            already segments is trained for the few steps of the preset.
        labels: the number of labelled patients to train on (all that are not held out by default).
        hold_out: a quarter of the labelled patients is held out and scored. False: train on all, score none.
        train_patients, validation_patients: the patients to train on and to score, instead of a random choice.
        epochs: train for so many epochs instead of until convergence.
        architecture: makes the encoder that was pre-trained, if it is not the paper's (``networks/interface.py``).
    """
    volumes = read_folder(data)
    # A plain folder without labels.json has the default labels, as in the bundle.
    anatomy = volumes[0].anatomy if volumes[0].anatomy.structures else ANATOMIES[DEFAULT]
    size = get_preset(preset) if isinstance(preset, str) else preset
    start = shipped_model(anatomy.bundle, size.name) if network == SHIPPED else network
    chosen = settings_for(size, str(start) if start else None)
    if not hold_out:
        train_patients = tuple(sorted({volume.patient for volume in volumes if volume.label is not None}))
        validation_patients = ()
    overrides: dict[str, Any] = {"settings": chosen, "labels": labels}
    if epochs is not None:
        overrides["epochs"] = epochs
    if architecture is not None:
        overrides["network_def"] = FreezableUNet(
            chosen.networks.channels, anatomy.classes, seed, architecture, chosen.networks.patch
        )
    spec = FinetuneSpec(
        data,
        train_patients,
        validation_patients,
        anatomy=anatomy,
        preset=chosen.name,
        pretrained_encoder=encoder,
        pretrained_network=start,
        seed=seed,
        hd95=True,
        overrides=overrides,
    )
    result = train(spec, out, progress=True)
    return Finetuned(Path(out) / MODEL, result.evaluation, result.losses)
