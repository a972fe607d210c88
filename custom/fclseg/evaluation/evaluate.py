"""The whole of an evaluation: match results with labelled images, score them, write tables and a page."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.folders import folder_anatomy, scan_folder
from fclseg.anatomy.records import Volume
from fclseg.anatomy.registry import ANATOMIES, DEFAULT
from fclseg.device import choose_device
from fclseg.documents import read_json
from fclseg.errors import DataError
from fclseg.evaluation.matching import Results
from fclseg.evaluation.page import write_page
from fclseg.evaluation.people import Person, first_of_each, read_people
from fclseg.evaluation.scores import ScoreRow, patient_row, volume_row
from fclseg.evaluation.summary import by, mean_and_worst, summarise, text_table
from fclseg.files import make_folder, whole_file, write_text
from fclseg.inference.cases import Cases
from fclseg.inference.patients import Inference
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import load_model
from fclseg.text import cell

TABLES = ("volumes.csv", "patients.csv")
SUMMARY, PAGE = "evaluation.json", "evaluation.html"


@dataclass(frozen=True)
class Pair:
    """Results and the labelled images they belong to."""

    results: Path
    labelled: Path
    table: Path | None = None  # hospital, vendor and group of the patients, if Info.cfg does not say


@dataclass
class Evaluated:
    """Scores of all pairs of folders together."""

    anatomy: Anatomy
    volumes: list[ScoreRow] = field(default_factory=list)
    patients: list[ScoreRow] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # labelled patients without a result
    sources: dict[tuple[str, str], Path] = field(default_factory=dict)  # results by hospital and patient

    def figures(self) -> dict[str, Any]:
        """Everything together, by hospital and by group."""
        hospitals, groups = (by(self.patients, column, self.anatomy) for column in ("hospital", "group"))
        every, lowest = mean_and_worst(hospitals)
        return {
            "all": summarise(self.patients, self.anatomy),
            "mean_over_hospitals": every,
            "lowest_hospital": lowest,
            "hospitals": hospitals,
            "groups": groups,
        }

    def text(self) -> str:
        """The tables for a terminal."""
        found = self.figures()
        parts = {"all": found["all"], **found["hospitals"], **found["groups"]}
        lines = [text_table(parts, self.anatomy)]
        if found["mean_over_hospitals"] is not None:
            lines.append(
                f"mean Dice over {len(found['hospitals'])} hospitals {found['mean_over_hospitals']:.3f}, "
                f"lowest {found['lowest_hospital']}"
            )
        one = found["all"]
        if "bad" in one:
            flagged = (
                f"{one['bad_flagged']} of {one['bad']} bad results and {one['good_flagged']} of {one['good']} good"
            )
            lines.append(f"flagged: {flagged} ones")
        return "\n".join(lines)

    def write(self, folder: Path) -> None:
        """``volumes.csv``, ``patients.csv``, ``evaluation.json`` and the page ``evaluation.html``."""
        make_folder(folder)
        for name, rows in zip(TABLES, (self.volumes, self.patients), strict=True):
            _write_csv(folder / name, rows)
        content = self.figures() | {"missing": self.missing, "patients": self.patients}
        write_text(folder / SUMMARY, json.dumps(content, indent=1))
        write_page(folder / PAGE, self.figures(), self.patients, self.missing, self.sources, self.anatomy)


def evaluate(
    pairs: Sequence[Pair],
    *,
    half: str | None = None,
    per_group: int | None = None,
    hd95: bool = True,
    model: Path | None = None,
) -> Evaluated:
    """Score all labelled images of the pairs that have a result. ``half`` and ``per_group`` restrict the patients.

    With a ``model``, patients without a result are segmented first.
    """
    evaluated = Evaluated(_anatomy(pairs[0].labelled))
    for pair in pairs:
        cases = labelled_cases(pair, evaluated.anatomy, half, per_group)
        if model is not None:
            _segment([volume for _, volumes in cases for volume in volumes], pair.results, model)
        _score(pair, cases, evaluated, hd95)
    if not evaluated.patients:
        raise DataError(f"{pairs[0].results}: has no label map of an image in {pairs[0].labelled}; check both folders")
    return evaluated


def labelled_cases(
    pair: Pair, anatomy: Anatomy, half: str | None = None, per_group: int | None = None
) -> list[tuple[Person, list[Volume]]]:
    """The chosen patients of a labelled folder with their labelled volumes."""
    scan = scan_folder(pair.labelled)
    volumes = [replace(volume, anatomy=anatomy) for volume in scan.volumes if volume.label is not None]
    if not volumes:
        reason = scan.problems[0] if scan.problems else f"{pair.labelled}: has no label map"
        raise DataError(reason)
    people = [one for one in read_people(volumes, pair.labelled, pair.table).values() if half in (None, one.half)]
    if per_group is not None:
        people = first_of_each(people, per_group)
    return [(one, [volume for volume in volumes if volume.patient == one.patient]) for one in people]


def _segment(volumes: Sequence[Volume], results: Path, model: Path) -> None:
    """Segment like ``fclseg segment``; what is finished is kept."""
    segmenter = Segmenter(load_model(model), choose_device())
    Inference(segmenter, Cases(tuple(volumes)), results, model).run()


def _score(pair: Pair, cases: Sequence[tuple[Person, list[Volume]]], evaluated: Evaluated, hd95: bool) -> None:
    results, flags = Results(pair.results), _flags(pair.results)
    for person, volumes in tqdm(cases, f"scoring {pair.labelled.name}", unit="patient", disable=None):
        found = [(volume, results.find(volume)) for volume in volumes]
        rows = [
            volume_row(volume, person, one.read(volume), volume.read_label().astype(np.uint8), hd95)
            for volume, one in found
            if one is not None
        ]
        if not rows:
            evaluated.missing.append(f"{person.hospital} {person.patient}")
            continue
        evaluated.volumes += rows
        evaluated.sources[person.hospital, person.patient] = pair.results
        evaluated.patients.append(patient_row(person, rows, evaluated.anatomy, flags.get(person.patient)))


def _anatomy(labelled: Path) -> Anatomy:
    found = folder_anatomy(labelled)
    return found if found.structures else ANATOMIES[DEFAULT]


def _flags(results: Path) -> dict[str, list[str]]:
    """What ``fclseg segment`` said should be looked at, by patient."""
    path = results / "measurements.json"
    if not path.is_file():
        return {}
    patients = read_json(path).get("patients", {})
    return {patient: list(one.get("look_at", ())) for patient, one in patients.items()}


def _write_csv(path: Path, rows: Sequence[ScoreRow]) -> None:
    with whole_file(path) as draft, open(draft, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
