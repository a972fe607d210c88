"""The end of a training: its model, and beside it the record of settings, losses and who was trained on.

The record is a file of its own because the model is made to be given away and patients' names are not.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fclseg.data.slices import SliceStore
from fclseg.documents import read_json, understood
from fclseg.files import whole_file
from fclseg.finetune.evaluation import remove_evaluation
from fclseg.finetune.handlers import CHECKPOINT
from fclseg.networks.model_file import MODEL, TrainedModel, write_model

RECORD = "training.json"


def write_record(output_dir: str | None, training: dict, losses: list[float]) -> None:
    """Write ``training.json`` (nothing without a folder), before the model.

    A model must never lie beside another training's record, since then an evaluation could score training patients,
    nor beside another training's scores. So these and an earlier model go first, and whenever a model is there, it is
    the record's.
    """
    if output_dir is None:
        return
    folder = Path(output_dir)
    for path in (folder / MODEL, (folder / MODEL).with_suffix(".pt")):
        path.unlink(missing_ok=True)
    remove_evaluation(folder)
    content = {**training, "dataset_dir": str(Path(training["dataset_dir"]).resolve())}
    content |= {"epochs": len(losses), "losses": losses}
    (folder / RECORD).write_text(json.dumps(content, indent=2, default=str))


def save_model(output_dir: str | None, model: TrainedModel) -> None:
    """Write ``model.safetensors`` (nothing without a folder); the training is finished, so its resume point goes."""
    if output_dir is None:
        return
    path = Path(output_dir) / MODEL
    write_model(path, model)
    with whole_file(path.with_suffix(".pt")) as draft:  # the weights alone, for MONAI's ckpt_export
        torch.save({name: tensor.detach().cpu() for name, tensor in model.network.state_dict().items()}, draft)
    (path.parent / CHECKPOINT).unlink(missing_ok=True)
    print(f"model written to {path}")


@dataclass(frozen=True)
class Recorded:
    """Names for ``choose_patients``; None leaves the choice to it."""

    train: list[str] | None
    validation: list[str] | None


def recorded_patients(checkpoint: str, dataset_dir: str, store: SliceStore) -> Recorded:
    """Who a model was trained on and who was held out, so that evaluating it never scores a training patient.

    Another folder than the training's may be the same data, moved or copied: everybody is held out but those who have
    the name of a training patient. For a model without a record it is everybody.
    """
    path = Path(checkpoint).with_name(RECORD)
    record = read_json(path) if path.is_file() else {}
    with understood(path, "remove it to evaluate on everybody"):
        return _recorded(record, dataset_dir, store)


def _recorded(record: dict[str, Any], dataset_dir: str, store: SliceStore) -> Recorded:
    if record.get("dataset_dir") != str(Path(dataset_dir).resolve()):
        trained = sorted(set(record.get("train_patients", [])) & set(store.patients))
        if trained:
            print(
                f"{len(trained)} of {len(store.patients)} patients have the names of training patients and are not "
                f'scored; if they are other people, add --train_patients "[]"'
            )
        return Recorded(trained, validation=None)
    return Recorded(record["train_patients"], record["validation_patients"])
