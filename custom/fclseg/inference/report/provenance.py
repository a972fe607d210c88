"""Which model made a result, in words."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from fclseg import __version__
from fclseg.documents import UNUSABLE
from fclseg.networks.model_file import TrainedModel

RECORD = "training.json"


@dataclass(frozen=True)
class Provenance:
    version: str
    model: str  # file name
    digest: str  # SHA-256 of the file, as its card states it
    preset: str
    anatomy: str
    training: str  # in words

    @classmethod
    def of(cls, model: TrainedModel, checkpoint: str | Path | None) -> "Provenance":
        path = None if checkpoint is None else Path(checkpoint)
        digest = "unknown"
        if path is not None and path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        name = "a network in memory" if path is None else path.name
        return cls(__version__, name, digest, model.preset, model.anatomy.title, model.about or _training(path))


def _training(path: Path | None) -> str:
    try:
        record = json.loads(path.with_name(RECORD).read_text(encoding="utf-8")) if path is not None else {}
        patients, epochs = len(record["train_patients"]), record["epochs"]
    except (OSError, *UNUSABLE):
        return "unknown: there is no training record next to the model"
    start = "random weights"
    for name, words in (("pretrained_encoder", "a pre-trained encoder"), ("pretrained_network", "a trained network")):
        start = words if record.get(name) else start
    return f"fine-tuned on {patients} labelled patients for {epochs} epochs, from {start}"
