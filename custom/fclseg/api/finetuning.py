"""Fine-tuning from Python, the same as ``fclseg finetune``: the training of the anatomy's bundle."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.registry import ANATOMIES, DEFAULT
from fclseg.finetune.evaluation import Evaluation
from fclseg.finetune.network import settings_for
from fclseg.finetune.train import FinetuneSpec, train
from fclseg.methods.exchange import SHIPPED
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.model_file import MODEL, load_model, segments
from fclseg.presets import Preset, get_preset
from fclseg.resources import shipped_model

NOTHING = "none"
"""``network``: start from random weights."""


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
    preset: Preset | str | None = None,
    epochs: int | None = None,
    seed: int = 0,
    architecture: EncoderFactory | None = None,
) -> Finetuned:
    """Fine-tune on a folder's labelled patients until the loss has converged, and score on the images' own grid.

    Args:
        network: the whole network to start from: a file, "shipped" for the weights of the bundle (the default, if they
            have this preset and no encoder is given), or "none". A network that already segments is trained for the few
            steps of the preset.
        encoder: a pre-trained encoder to start from instead.
        preset: by default that of the network to start from; "small" without one.
        labels: the number of labelled patients to train on (all that are not held out by default).
        hold_out: a quarter of the labelled patients is held out and scored. False: train on all, score none.
        train_patients, validation_patients: the patients to train on and to score, instead of a random choice.
        epochs: train for so many epochs instead of until convergence.
        architecture: makes the encoder that was pre-trained, if it is not the paper's (``networks/interface.py``).
    """
    volumes = read_folder(data)
    # A plain folder without labels.json has the default labels, as in the bundle.
    anatomy = volumes[0].anatomy if volumes[0].anatomy.structures else ANATOMIES[DEFAULT]
    start = _start(anatomy, encoder, network, preset)
    if preset is None:
        preset = load_model(start).preset if start is not None and segments(start) else "small"
    chosen = settings_for(get_preset(preset) if isinstance(preset, str) else preset, str(start) if start else None)
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


def _start(
    anatomy: Anatomy, encoder: Path | str | None, network: Path | str | None, preset: Preset | str | None
) -> Path | None:
    """The network that a training starts from. Nobody should train from random weights by accident."""
    if network == NOTHING or (network is None and encoder is not None):
        return None
    if network not in (None, SHIPPED):
        return Path(str(network))
    name = preset if preset is None or isinstance(preset, str) else preset.name
    shipped = shipped_model(anatomy.bundle, name)
    if network == SHIPPED:
        return shipped
    if shipped.is_file() and name in (None, load_model(shipped).preset):
        return shipped
    print("random weights at the start: there are no shipped weights of this preset")
    return None
