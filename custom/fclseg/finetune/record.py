"""The output of a training: its model, and a record of settings, losses and patients next to it.

The record is a separate file because the model is meant to be shared and patient names are not.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fclseg.data.slices import SliceStore
from fclseg.documents import read_json, understood
from fclseg.finetune.evaluation import remove_evaluation
from fclseg.finetune.handlers import CHECKPOINT
from fclseg.networks.model_file import MODEL, TrainedModel, write_model
from fclseg.networks.plain_weights import plain_weights

RECORD = "training.json"


def write_record(output_dir: str | None, training: dict[str, Any], losses: list[float]) -> None:
    """Write ``training.json`` before the model. Without a folder nothing is written.

    A model must never be next to the record of another training, because an evaluation could then score training
    patients. The same holds for another training's scores. So the scores and an earlier model are removed first. If
    there is a model, it therefore belongs to the record.
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
    """Write ``model.safetensors`` and remove the checkpoint of the training. Without a folder nothing is written."""
    if output_dir is None:
        return
    path = Path(output_dir) / MODEL
    write_model(path, model)
    plain_weights(path)
    (path.parent / CHECKPOINT).unlink(missing_ok=True)
    print(f"model written to {path}")


@dataclass(frozen=True)
class Recorded:
    """Names for ``choose_patients``. None leaves the choice to it."""

    train: list[str] | None
    validation: list[str] | None


def recorded_patients(checkpoint: str, dataset_dir: str, store: SliceStore) -> Recorded:
    """The training and held-out patients of a model, so that an evaluation never scores a training patient.

    A different folder may contain the same data, moved or copied. All of its patients count as held out, except those
    with the name of a training patient. Without a record, all patients count as held out.
    """
    path = Path(checkpoint).with_name(RECORD)
    record = read_json(path) if path.is_file() else {}
    with understood(path, "remove it to evaluate on all patients"):
        return _recorded(record, dataset_dir, store)


def _recorded(record: dict[str, Any], dataset_dir: str, store: SliceStore) -> Recorded:
    if record.get("dataset_dir") != str(Path(dataset_dir).resolve()):
        trained = sorted(set(record.get("train_patients", [])) & set(store.patients))
        if trained:
            print(
                f"{len(trained)} of {len(store.patients)} patients have the names of training patients and are not "
                f'scored; if they are different people, add --train_patients "[]"'
            )
        return Recorded(trained, validation=None)
    return Recorded(record["train_patients"], record["validation_patients"])
