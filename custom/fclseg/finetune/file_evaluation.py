"""Evaluates held-out patients the way inference sees them: from the file to the label map on its own grid."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tqdm import tqdm

from fclseg.anatomy.base import EjectionFraction
from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume, read_images
from fclseg.data.preprocess import UNLABELLED
from fclseg.finetune.agreement import bland_altman, in_words, write_agreement_plot
from fclseg.finetune.evaluation import PLOT, Evaluation, VolumeEvaluator, scores, where_labelled
from fclseg.inference.measure import ejection_fraction, millilitres
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import TrainedModel

NETWORK = "network_"
"""Prefix of the columns with scores on the network's own grid, in a window at the centre of the image."""


class FileEvaluator:
    """``run()`` segments every labelled volume like inference. ``stored`` adds the scores on the network's grid."""

    def __init__(self, stored: VolumeEvaluator, model: TrainedModel, dataset_dir: str):
        self.stored, self.model, self.dataset_dir = stored, model, dataset_dir

    def run(self) -> Evaluation:
        network = self.stored.evaluate()
        anatomy, metrics = self.stored.anatomy, self.stored.metrics
        beside = tuple(
            replace(metric, name=NETWORK + metric.name, title=f"{metric.title} on the network's grid")
            for metric in metrics
        )
        evaluation = Evaluation(anatomy.names, (*metrics, *beside))
        known = {(row["patient"], row["frame"]): row for row in network.rows}
        for row in self._rows():
            columns = {NETWORK + name: value for name, value in known[row["patient"], row["frame"]].items()}
            evaluation.rows.append(row | {name: columns[name] for name in columns if name.startswith(_names(beside))})
        if evaluation.rows:
            evaluation.agreement = self._agreement(evaluation.rows)
        self.stored.publish(evaluation)
        if evaluation.agreement and self.stored.output_dir is not None:
            write_agreement_plot(self.stored.output_dir / PLOT, evaluation.agreement)
            for name, one in evaluation.agreement.items():
                print(f"{name}: {in_words(one)}")
        return evaluation

    def _rows(self) -> list[dict[str, Any]]:
        volumes = [volume for volume in read_folder(self.dataset_dir) if volume.label is not None]
        volumes = [replace(volume, anatomy=self.stored.anatomy) for volume in volumes]
        chosen = [volume for volume in volumes if volume.patient in self.stored.patients]
        segmenter = Segmenter(self.model, self.stored.device, refined=self.stored.refined)
        bar = tqdm(read_images(chosen), "scoring", len(chosen), unit="volume", disable=None)
        return [self._row(segmenter, volume, voxels) for volume, voxels in bar]

    def _row(self, segmenter: Segmenter, volume: Volume, voxels: np.ndarray) -> dict[str, Any]:
        anatomy = self.stored.anatomy
        prediction, truth = segmenter(voxels, volume).labels, volume.read_label().astype(np.uint8)
        whole = not (truth == UNLABELLED).any()
        prediction, truth = where_labelled(prediction, truth)
        row: dict[str, Any] = {"patient": volume.patient, "frame": volume.frame, "phase": volume.phase}
        stacks = [np.moveaxis(labels, -1, 0) for labels in (prediction, truth)]
        row |= scores(self.stored.metrics, stacks[0], stacks[1], anatomy, volume.spacing)
        for prefix, labels in (("ml", prediction), ("true_ml", truth)):
            amounts = millilitres(labels, volume.spacing, anatomy)
            row |= {f"{prefix}_{name}": round(value, 2) if whole else None for name, value in amounts.items()}
        return row

    def _agreement(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        anatomy = self.stored.anatomy
        rows = [row for row in rows if row[f"ml_{anatomy.names[0]}"] is not None]  # others are labelled only in part
        found: dict[str, Any] = {}
        if not rows:
            return found
        for name in anatomy.names:
            pairs = [(row[f"ml_{name}"], row[f"true_ml_{name}"]) for row in rows]
            found[f"{name} volume"] = bland_altman(pairs, "ml")
        for one in anatomy.measurements:
            if isinstance(one, EjectionFraction) and (pairs := _fractions(rows, one.structure)):
                found[f"{one.structure} ejection fraction"] = bland_altman(pairs, "%")
        return found


def _names(metrics: Sequence[Any]) -> tuple[str, ...]:
    return tuple(f"{metric.name}_" for metric in metrics)


def _fractions(rows: Sequence[dict[str, Any]], structure: str) -> list[tuple[float, float]]:
    """(found, true) for every patient with both phases."""
    pairs = []
    for patient in sorted({row["patient"] for row in rows}):
        phases = {row["phase"]: row for row in rows if row["patient"] == patient}
        both = [
            ejection_fraction(*(phases[phase][f"{kind}_{structure}"] for phase in ("ED", "ES")))
            for kind in ("ml", "true_ml")
            if {"ED", "ES"} <= set(phases)
        ]
        if len(both) == 2 and both[0] is not None and both[1] is not None:
            pairs.append((both[0], both[1]))
    return pairs
