"""Fine-tuning: runs the bundle's own train config, with overrides, in this process.

A study calls this thousands of times, so nothing unnecessary is started, read again or written. Network, data,
augmentation, loss and loop are the same as in ``python -m monai.bundle run``, because they come from the same file.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from monai.bundle import ConfigParser

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.registry import ANATOMIES, DEFAULT
from fclseg.finetune.evaluation import Evaluation, VolumeEvaluator
from fclseg.finetune.plain_errors import user_error
from fclseg.resources import bundle_folder


@dataclass(frozen=True)
class FinetuneSpec:
    """One fine-tuning: patients, encoder, and how much of the encoder is trained."""

    dataset_dir: str | Path
    train_patients: tuple[str, ...] | None = None  # None: the bundle chooses and holds out a quarter
    validation_patients: tuple[str, ...] | None = None
    unlabelled_patients: tuple[str, ...] | None = None  # None: all others; used with finetuning.unlabelled_weight
    anatomy: Anatomy = ANATOMIES[DEFAULT]
    preset: str = "small"
    pretrained_encoder: str | Path | None = None  # None: random initial weights
    pretrained_network: str | Path | None = None  # encoder and decoder
    freeze_encoder: bool = False  # True: frozen-encoder evaluation
    seed: int = 0
    hd95: bool = False
    overrides: Mapping[str, object] = field(default_factory=dict)  # any other key of the train config


@dataclass(frozen=True)
class FinetuneResult:
    evaluation: Evaluation  # scores of the validation patients
    losses: list[float]  # mean training loss of each epoch
    seconds: float
    evaluator: VolumeEvaluator  # has the trained network, for pictures of its predictions


def bundle_config(anatomy: Anatomy, name: str) -> Path:
    """Path of a config file of the anatomy's bundle."""
    return bundle_folder(anatomy.bundle) / "configs" / name


def train(spec: FinetuneSpec, output_dir: str | Path | None = None, *, progress: bool = False) -> FinetuneResult:
    """Train and evaluate like the bundle: until the loss has converged, scored on the images' own grid. With
    ``output_dir``, also write model and tables there."""
    began = time.perf_counter()
    parser = training_config(spec, output_dir, progress)
    outcome = run_steps(parser)
    history = parser.get_parsed_content("train#history")
    evaluator = parser.get_parsed_content("validate#evaluator")
    return FinetuneResult(outcome, list(history.losses), time.perf_counter() - began, evaluator)


def run_steps(parser: ConfigParser) -> Evaluation:
    """Run all steps of the config and return the result of the last. Errors are the user's sentence if there is one."""
    try:
        for step in range(len(parser["run"])):
            outcome = parser.get_parsed_content(f"run#{step}")
    except Exception as error:
        if (sentence := user_error(error)) is not None and sentence is not error:
            raise sentence from error
        raise
    return outcome


def training_config(spec: FinetuneSpec, output_dir: str | Path | None, progress: bool) -> ConfigParser:
    """The bundle's train config with the values of this spec instead of its defaults.

    MONAI executes strings that start with $ and resolves those with @, % or #, also inside lists. Patient names are
    folder names, which anybody may have chosen. So they are passed as tuples, and paths as ``Path``: MONAI leaves these
    alone.
    """
    parser = ConfigParser()
    parser.read_config(bundle_config(spec.anatomy, "train.json"))
    parser.read_meta(bundle_config(spec.anatomy, "metadata.json"))
    parser.update(
        {
            "dataset_dir": Path(spec.dataset_dir),
            "anatomy": spec.anatomy,
            "output_dir": None if output_dir is None else Path(output_dir),
            "preset": spec.preset,
            "pretrained_encoder": None if spec.pretrained_encoder is None else Path(spec.pretrained_encoder),
            "pretrained_network": None if spec.pretrained_network is None else Path(spec.pretrained_network),
            "train_patients": _names(spec.train_patients),
            "validation_patients": _names(spec.validation_patients),
            "unlabelled_patients": _names(spec.unlabelled_patients),
            "freeze_encoder": spec.freeze_encoder,
            "seed": spec.seed,
            "hd95": spec.hd95,
            "progress": progress,
            **spec.overrides,
        }
    )
    return parser


def _names(patients: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if patients is None else tuple(patients)
