"""Held-out patients: predict every stored slice, score per volume, and write the table."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from fclseg.anatomy.base import Anatomy
from fclseg.data.slices import SliceStore
from fclseg.finetune.metrics import volume_dice, volume_hd95
from fclseg.networks.unet import UNet

EVALUATION_FILES = ("evaluation.csv", "evaluation.json")


def remove_evaluation(folder: Path) -> None:
    """Take away the scores of an earlier training or evaluation, which are not those of the model that is there now."""
    for name in EVALUATION_FILES:
        (folder / name).unlink(missing_ok=True)


@dataclass
class Evaluation:
    """One row per volume; ``structures`` names the columns of Dice and HD95."""

    structures: tuple[str, ...]
    rows: list[dict] = field(default_factory=list)

    def mean(self, quantity: str) -> dict[str, float]:
        """Mean over volumes per structure: first over a patient's volumes, then over patients."""
        patients = sorted({row["patient"] for row in self.rows})
        table = [[self._of_patient(p, f"{quantity}_{name}") for name in self.structures] for p in patients]
        return {n: float(v) for n, v in zip(self.structures, np.mean(table, axis=0), strict=True)} if table else {}

    def _of_patient(self, patient: str, column: str) -> float:
        return float(np.mean([row[column] for row in self.rows if row["patient"] == patient]))

    @property
    def has_hd95(self) -> bool:
        return bool(self.rows) and f"hd95_{self.structures[0]}" in self.rows[0]

    @property
    def dice(self) -> dict[str, float]:
        return self.mean("dice")

    @property
    def hd95(self) -> dict[str, float]:
        return self.mean("hd95") if self.has_hd95 else {}

    @property
    def mean_dice(self) -> float:
        return float(np.mean(list(self.dice.values()))) if self.rows else float("nan")

    def summary(self) -> str:
        patients = len({row["patient"] for row in self.rows})
        dice = ", ".join(f"{name} {value:.3f}" for name, value in self.dice.items())
        line = f"{patients} held-out patients: mean Dice {self.mean_dice:.3f} ({dice})"
        if self.has_hd95:
            line += "; HD95 mm " + ", ".join(f"{name} {value:.1f}" for name, value in self.hd95.items())
        return line

    def write(self, folder: Path) -> None:
        """``evaluation.csv`` with one row per volume, ``evaluation.json`` with the means as well."""
        folder.mkdir(parents=True, exist_ok=True)
        table, means = (folder / name for name in EVALUATION_FILES)
        with open(table, "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)
        content = {"dice": self.dice, "mean_dice": self.mean_dice, "hd95_mm": self.hd95, "volumes": self.rows}
        means.write_text(json.dumps(content, indent=2))


class VolumeEvaluator:
    """``run()`` scores the network on every labelled volume of the given patients."""

    def __init__(
        self,
        network: UNet,
        store: SliceStore,
        patients: Sequence[str],
        anatomy: Anatomy,
        *,
        device: torch.device | str = "cpu",
        hd95: bool = True,
        output_dir: str | None = None,
    ):
        self.network, self.store, self.patients = network, store, set(patients)
        self.anatomy, self.device, self.hd95 = anatomy, device, hd95
        self.output_dir = None if output_dir is None else Path(output_dir)

    def run(self) -> Evaluation:
        evaluation = Evaluation(self.anatomy.names)
        self.network.eval()
        for volume in self.store.volumes:
            if volume.labelled and volume.patient in self.patients:
                evaluation.rows.append(self._score(volume))
        if self.output_dir is not None:
            self._publish(evaluation)
        return evaluation

    def _publish(self, evaluation: Evaluation) -> None:
        if evaluation.rows:
            evaluation.write(self.output_dir)
            print(evaluation.summary())
        else:
            remove_evaluation(self.output_dir)
            print("nobody was held out, so nothing is scored")

    @torch.inference_mode()
    def predict(self, start: int, stop: int) -> np.ndarray:
        """Label map [n, H, W] of a range of stored slices."""
        images = torch.from_numpy(np.asarray(self.store.images[start:stop], dtype=np.float32))[:, None]
        return self.network(images.to(self.device)).argmax(dim=1).to(torch.uint8).cpu().numpy()

    def _score(self, volume) -> dict:
        prediction = self.predict(volume.start, volume.stop)
        truth = np.asarray(self.store.labels[volume.start : volume.stop])
        names, classes = self.anatomy.names, self.anatomy.classes
        row = {"patient": volume.patient, "frame": volume.frame, "phase": volume.phase}
        dice = volume_dice(prediction, truth, classes)
        row |= {f"dice_{name}": round(float(v), 6) for name, v in zip(names, dice, strict=True)}
        if self.hd95:
            distances = volume_hd95(prediction, truth, classes, volume.spacing)
            row |= {f"hd95_{name}": round(float(v), 4) for name, v in zip(names, distances, strict=True)}
        return row
