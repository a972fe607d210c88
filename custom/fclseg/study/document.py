"""What a study stores, as types: the result of a cell, and the document ``study.json`` with everything about a table.

They are dictionaries, because they are exactly what their JSON files contain.
"""

from pathlib import Path
from typing import Any, NotRequired, TypedDict

from fclseg.documents import read_json
from fclseg.errors import FCLSegError
from fclseg.study.cells import FORMAT

Round = dict[str, Any]
"""A line of a run's ``rounds.jsonl``, which the server wrote."""


class MetricText(TypedDict):
    """How a metric is named and shown."""

    name: str
    title: str
    column: str
    unit: str
    decimals: int
    note: str


class ScoredMetric(MetricText):
    """A metric with its mean per structure."""

    structures: dict[str, float]


class FinetuningResult(TypedDict):
    """The stored result of a fine-tuning."""

    dice: float
    metrics: list[ScoredMetric]
    volumes: list[dict[str, Any]]  # patient, and one column per metric and structure
    labelled: list[str]  # the patients that it was trained on
    losses: list[float]
    finished: str
    seconds: NotRequired[float]  # added when it is stored


class PretrainingResult(TypedDict):
    """The stored result of a pre-training. Paths are relative to the folder of all studies, by site ("": shared)."""

    rounds: list[Round]
    encoders: dict[str, str]
    networks: dict[str, str]  # whole networks, if the method hands them over
    seconds: float


class TableCell(TypedDict):
    """A cell of the table."""

    row: str
    labels: int
    mode: str


class SummaryFigures(TypedDict):
    mean: float
    sd: float | None
    groups: int
    runs: int
    fine_tunings: int


class ComparisonFigures(TypedDict):
    pairs: int
    difference: float
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None


class RunScore(TypedDict):
    """The Dice of one run, the mean over its pre-training seeds."""

    site: str
    fold: int
    seed: int
    dice: float


class SeedScore(RunScore):
    pretrain_seed: int | None


class Entry(TableCell):
    """The figures of one cell of the table."""

    summary: SummaryFigures
    metrics: dict[str, dict[str, float]]  # metric -> structure -> mean
    paper: tuple[float, float] | None
    runs: list[RunScore]
    scores: list[SeedScore]
    comparison: ComparisonFigures | None
    hospitals: dict[str, float]  # Dice of each hospital's held-out patients


class Curve(TableCell):
    loss: list[float]


class Picture(TableCell):
    file: str


class RowText(TypedDict):
    key: str
    title: str
    job: str


class RunRecord(TypedDict):
    """A pre-training of the table, for the report."""

    job: str
    options: str
    seed: int
    name: str
    seconds: float
    rounds: list[Round]


class FailureText(TypedDict):
    cell: str
    reason: str


class DatasetFacts(TypedDict):
    name: str
    anatomy: str
    structures: list[dict[str, Any]]
    fingerprint: str
    sites: dict[str, int]
    outside: dict[str, int]  # hospitals that took part in nothing


class StudySettings(TypedDict):
    """The settings that the figures depend on."""

    preset: dict[str, Any]
    data: DatasetFacts | None
    target: DatasetFacts | None
    job: dict[str, Any]
    folds: NotRequired[int]
    seeds: NotRequired[int]
    pretrain_seeds: NotRequired[int]
    unseen: NotRequired[bool]


class Components(TypedDict):
    """The words of the components table by row, ours and the paper's."""

    columns: list[str]
    rows: dict[str, list[str]]
    paper: dict[str, list[str]]


class RowTraffic(TypedDict):
    """Payload per round and site of one method in MB."""

    megabytes: float
    ratio: float
    up: dict[str, float]
    down: dict[str, float]
    paper_preset_megabytes: float
    paper_preset_ratio: float
    paper_ratio: float | None


class Communication(TypedDict):
    sites: int
    rows: dict[str, RowTraffic]


class Study(TypedDict):
    """``study.json``."""

    format: int
    table: str
    title: str
    about: str
    symbol: str
    spread: str
    labels: list[int]
    modes: list[str]
    metrics: list[MetricText]
    baseline: str | None
    rows: list[RowText]
    entries: list[Entry]
    curves: list[Curve]
    pictures: list[Picture]
    pretraining: list[RunRecord]
    failures: list[FailureText]
    missing: int
    settings: StudySettings
    seconds: float
    date: str
    command: str
    version: str
    machine: dict[str, Any]
    components: NotRequired[Components]
    communication: NotRequired[Communication]


def read_study(path: Path) -> Study:
    """A ``study.json`` of this format."""
    found = read_json(path)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FCLSegError(
            f"{path} is not a study of format {FORMAT}, the one of this version: run the study's command again with "
            "another --out"
        )
    return found  # type: ignore[return-value]
