"""Evaluation on held-out patients: predict every stored slice, score per volume, and write the table."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fclseg.anatomy.base import Anatomy
from fclseg.data.preprocess import UNLABELLED
from fclseg.data.slices import SliceStore
from fclseg.files import private_folder
from fclseg.finetune import metrics
from fclseg.finetune.metrics import Metric
from fclseg.inference.refine import averaged, cleaned
from fclseg.networks.unet import UNet
from fclseg.text import cell

EVALUATION_FILES = ("evaluation.csv", "evaluation.json")
PLOT = "agreement.png"


def remove_evaluation(folder: Path) -> None:
    """Remove the scores of an earlier training or evaluation, because they do not belong to the current model."""
    for name in (*EVALUATION_FILES, PLOT):
        (folder / name).unlink(missing_ok=True)


@dataclass
class Evaluation:
    """One row per volume, one column per metric and structure."""

    structures: tuple[str, ...]
    metrics: tuple[Metric, ...]
    rows: list[dict[str, Any]] = field(default_factory=list)
    agreement: dict[str, Any] = field(default_factory=dict)  # between predicted and true volumes and ejection fractions

    def mean(self, metric: str) -> dict[str, float]:
        """Mean per structure: first over a patient's volumes, then over patients."""
        patients = sorted({row["patient"] for row in self.rows})
        table = [[self._of_patient(p, f"{metric}_{name}") for name in self.structures] for p in patients]
        return {n: float(v) for n, v in zip(self.structures, np.mean(table, axis=0), strict=True)} if table else {}

    def _of_patient(self, patient: str, column: str) -> float:
        return float(np.mean([row[column] for row in self.rows if row["patient"] == patient]))

    @property
    def dice(self) -> dict[str, float]:
        return self.mean("dice")

    @property
    def mean_dice(self) -> float:
        return float(np.mean(list(self.dice.values()))) if self.rows else float("nan")

    def means(self) -> list[dict[str, Any]]:
        """Every metric with its description and its mean per structure, as plain values."""
        return [metric.describe() | {"structures": self.mean(metric.name)} for metric in self.metrics]

    def summary(self) -> str:
        patients = len({row["patient"] for row in self.rows})
        parts = []
        for one in self.means():
            figures = ", ".join(f"{name} {value:.{one['decimals']}f}" for name, value in one["structures"].items())
            parts.append(" ".join(filter(None, (one["title"], one["unit"], figures))))
        return f"{patients} held-out patients: mean Dice {self.mean_dice:.3f}; " + "; ".join(parts)

    def write(self, folder: Path) -> None:
        """Write ``evaluation.csv`` with one row per volume, and ``evaluation.json``, which also has the means."""
        private_folder(folder)
        table, means = (folder / name for name in EVALUATION_FILES)
        with open(table, "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.rows[0]))
            writer.writeheader()
            writer.writerows({name: cell(value) for name, value in row.items()} for row in self.rows)
        content = {one["column"]: one["structures"] for one in self.means()}
        content |= {"mean_dice": self.mean_dice, "agreement": self.agreement, "volumes": self.rows}
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
        refined: bool = False,
    ):
        self.network, self.store, self.patients = network, store, set(patients)
        self.anatomy, self.device, self.refined = anatomy, device, refined
        self.metrics = tuple(metric for metric in metrics.METRICS if hd95 or not metric.slow)
        self.output_dir = None if output_dir is None else Path(output_dir)

    def run(self) -> Evaluation:
        evaluation = self.evaluate()
        self.publish(evaluation)
        return evaluation

    def evaluate(self) -> Evaluation:
        evaluation = Evaluation(self.anatomy.names, self.metrics)
        self.network.eval()
        for volume in self.store.volumes:
            if volume.labelled and volume.patient in self.patients:
                evaluation.rows.append(self._score(volume))
        return evaluation

    def publish(self, evaluation: Evaluation) -> None:
        """Print the scores and write them, if there is a folder for them."""
        if self.output_dir is None:
            return
        if evaluation.rows:
            evaluation.write(self.output_dir)
            print(evaluation.summary())
        else:
            remove_evaluation(self.output_dir)
            print("no patient was held out, so nothing is scored")

    @torch.inference_mode()
    def predict(self, start: int, stop: int) -> np.ndarray:
        """Label map [n, H, W] of a volume's stored slices."""
        images = torch.from_numpy(np.asarray(self.store.images[start:stop], dtype=np.float32))[:, None].to(self.device)
        if not self.refined:
            return _labels(self.network(images))
        average = averaged(lambda windows: self.network(windows).softmax(dim=1))
        return cleaned(_labels(average(images)), self.anatomy)

    def _score(self, volume: Any) -> dict[str, Any]:
        prediction = self.predict(volume.start, volume.stop)
        prediction, truth = where_labelled(prediction, np.asarray(self.store.labels[volume.start : volume.stop]))
        row = {"patient": volume.patient, "frame": volume.frame, "phase": volume.phase}
        return row | scores(self.metrics, prediction, truth, self.anatomy, volume.spacing)


def _labels(scores: torch.Tensor) -> np.ndarray:
    return scores.argmax(dim=1).to(torch.uint8).cpu().numpy()


def where_labelled(prediction: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both label maps, as background where nobody has labelled: nothing is scored there."""
    known = truth != UNLABELLED
    return prediction * known, truth * known


def scores(
    chosen: Sequence[Metric], prediction: np.ndarray, truth: np.ndarray, anatomy: Anatomy, spacing: metrics.Spacing
) -> dict[str, float]:
    """One column per metric and structure, for label maps [n, H, W]."""
    row = {}
    for metric in chosen:
        values = metric.compute(prediction, truth, anatomy.classes, spacing)
        for name, value in zip(anatomy.names, values, strict=True):
            row[f"{metric.name}_{name}"] = round(float(value), metric.decimals + 3)
    return row
