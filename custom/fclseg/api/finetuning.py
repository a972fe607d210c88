"""Fine-tuning and segmentation from Python: the bundles' own training and inference."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fclseg.anatomy.folders import folder_anatomy
from fclseg.anatomy.registry import ANATOMIES, DEFAULT
from fclseg.device import choose_device
from fclseg.finetune.evaluation import Evaluation
from fclseg.finetune.run import FinetuneSpec
from fclseg.finetune.run import finetune as run_bundle
from fclseg.inference.cases import find_cases
from fclseg.inference.function import PatientResult
from fclseg.inference.run import Inference
from fclseg.inference.segment import Segmenter
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.model_file import MODEL, load_model
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset, get_preset


@dataclass(frozen=True)
class Finetuned:
    """A model file, its scores on the held-out patients, and the loss of each epoch."""

    model: Path
    evaluation: Evaluation
    losses: list[float]


def finetune(
    data: Path | str,
    out: Path | str,
    pretrained: Path | str | None = None,
    *,
    labels: int | None = None,
    train_patients: tuple[str, ...] | None = None,
    validation_patients: tuple[str, ...] | None = None,
    preset: Preset | str = "small",
    seed: int = 0,
    encoder: EncoderFactory | None = None,
) -> Finetuned:
    """Fine-tune on a folder's labelled patients, starting from the encoder file ``pretrained`` or random weights.

    A quarter of the labelled patients is held out and scored, unless you name the patients. ``labels`` of the others
    are used for training (all by default). ``encoder`` makes the encoder that was pre-trained, if it is not the
    paper's.
    """
    chosen = get_preset(preset) if isinstance(preset, str) else preset
    found = folder_anatomy(data)
    # A plain folder without labels.json has the default labels, as in the bundle.
    anatomy = found if found.structures else ANATOMIES[DEFAULT]
    overrides: dict[str, Any] = {"settings": chosen, "labels": labels}
    if encoder is not None:
        overrides["network_def"] = FreezableUNet(chosen.networks.channels, anatomy.classes, seed, encoder)
    spec = FinetuneSpec(
        data,
        train_patients,
        validation_patients,
        anatomy=anatomy,
        preset=chosen.name,
        pretrained_encoder=pretrained,
        seed=seed,
        overrides=overrides,
    )
    result = run_bundle(spec, out, progress=True)
    return Finetuned(Path(out) / MODEL, result.evaluation, result.losses)


def segment(
    model: Path | str, images: Path | str, out: Path | str, *, encoder: EncoderFactory = Encoder
) -> list[PatientResult]:
    """Segment a NIfTI file or a folder. Writes label maps, pictures and tables to ``out``; one result per patient."""
    segmenter = Segmenter(load_model(model, encoder=encoder), choose_device())
    return Inference(segmenter, find_cases(str(images), output_dir=str(out)), out).run()
