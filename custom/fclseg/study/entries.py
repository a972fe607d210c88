"""Turns finished cells into the entries of a table: figures, comparisons with the baseline, and all metrics."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean

from fclseg.data.sites import Splits
from fclseg.study.cells import FULL, Finetuning
from fclseg.study.document import (
    Entry,
    FinetuningResult,
    MetricText,
    ScoredMetric,
)
from fclseg.study.plan import Planned, Request
from fclseg.study.statistics import Comparison, Run, compare, holm, summarise
from fclseg.study.tables import TableRow, paper_dice

Finished = list[tuple[Planned, FinetuningResult]]


def entries(request: Request, finished: Finished) -> list[Entry]:
    """One entry per row, number of labels and mode. Comparisons are corrected within each mode."""
    found = []
    for mode in request.modes:
        family = [
            entry
            for labels in request.labels
            for row in request.rows
            if (entry := _entry(request, finished, row, labels, mode)) is not None
        ]
        values: dict[tuple[str | None, int], dict[Run, float]] = {
            (entry["row"], entry["labels"]): _values(entry) for entry in family
        }
        tests = [_against_baseline(request, entry, values) for entry in family]
        corrected = holm([test.p if test else None for test in tests])
        for entry, test, p in zip(family, tests, corrected, strict=True):
            entry["comparison"] = asdict(replace(test, p_holm=p)) if test else None  # type: ignore[typeddict-item]
        found += family
    return found


def _entry(request: Request, finished: Finished, row: TableRow, labels: int, mode: str) -> Entry | None:
    mine = [
        (one.cell, result)
        for one, result in finished
        if one.row.key == row.key and one.cell.labels == labels and one.cell.mode == mode
    ]
    if not mine:
        return None
    scores = [
        (Run(site, cell.fold, cell.seed), cell.pretraining.seed if cell.pretraining else None, value)
        for cell, result in mine
        for site, value in dice_by_site(cell, result).items()
    ]
    by_run = defaultdict(list)  # runs that differ only in the pre-training seed count once, with their mean
    for run, _, value in scores:
        by_run[run].append(value)
    dice = {run: fmean(values) for run, values in sorted(by_run.items())}
    summary = summarise(dice, request.table.spread)
    return Entry(
        row=row.key,
        labels=labels,
        mode=mode,
        summary={
            "mean": summary.mean,
            "sd": summary.sd,
            "groups": summary.groups,
            "runs": summary.runs,
            "fine_tunings": len(mine),
        },
        metrics=mean_metrics([result["metrics"] for _, result in mine]),
        paper=paper_dice(request.table.name, row.key, labels) if mode == FULL else None,  # it has no frozen encoder
        runs=[{"site": run.site, "fold": run.fold, "seed": run.seed, "dice": value} for run, value in dice.items()],
        scores=[
            {"site": run.site, "fold": run.fold, "seed": run.seed, "pretrain_seed": number, "dice": value}
            for run, number, value in scores
        ],
        comparison=None,
        hospitals=dice_by_hospital(mine),
    )


def dice_by_site(cell: Finetuning, result: FinetuningResult) -> dict[str, float]:
    """A fine-tuning's Dice at its site. A fine-tuning without a site (federated, centralised, transfer) is scored at
    each site that holds out patients, on that site's patients only."""
    splits = Splits.load(cell.data.splits)
    if cell.site is not None and not splits.outside:
        return {cell.site: result["dice"]}
    scores = patient_dice(result)
    if cell.site is not None:
        return {cell.site: fmean(scores[patient] for patient in splits.inside(cell.fold))}
    return _by_hospital(scores, splits.sites)


def dice_by_hospital(cells: Sequence[tuple[Finetuning, FinetuningResult]]) -> dict[str, float]:
    """The Dice of each hospital's held-out patients, averaged over fine-tunings; also of one that took no part."""
    found = defaultdict(list)
    for cell, result in cells:
        splits = Splits.load(cell.data.splits)
        for hospital, value in _by_hospital(patient_dice(result), splits.sites | splits.outside).items():
            found[hospital].append(value)
    return {hospital: fmean(values) for hospital, values in found.items()}


def patient_dice(result: FinetuningResult) -> dict[str, float]:
    """The mean Dice of each scored patient over frames and structures."""
    dice = next(metric for metric in result["metrics"] if metric["name"] == "dice")
    names = [f"dice_{structure}" for structure in dice["structures"]]
    volumes = defaultdict(list)
    for volume in result.get("volumes", []):
        volumes[volume["patient"]].append(fmean(volume[name] for name in names))
    return {patient: fmean(values) for patient, values in volumes.items()}


def _by_hospital(scores: dict[str, float], sites: dict[str, list[str]]) -> dict[str, float]:
    found = {}
    for site, patients in sites.items():
        if values := [scores[patient] for patient in patients if patient in scores]:
            found[site] = fmean(values)
    return found


def _values(entry: Entry) -> dict[Run, float]:
    return {Run(run["site"], run["fold"], run["seed"]): run["dice"] for run in entry["runs"]}


def _against_baseline(
    request: Request, entry: Entry, values: dict[tuple[str | None, int], dict[Run, float]]
) -> Comparison | None:
    baseline = values.get((request.baseline, entry["labels"]))
    if entry["row"] == request.baseline or baseline is None:
        return None
    return compare(_values(entry), baseline)


def mean_metrics(results: Sequence[list[ScoredMetric]]) -> dict[str, dict[str, float]]:
    """Each metric's mean per structure. A metric that some results lack is left out: its mean would be unfair."""
    tables: dict[str, list[dict[str, float]]] = defaultdict(list)
    for metrics in results:
        for metric in metrics:
            tables[metric["name"]].append(metric["structures"])
    return {name: _mean_by_name(found) for name, found in tables.items() if len(found) == len(results)}


def metric_descriptions(finished: Finished) -> list[MetricText]:
    """All metrics in the cells, each once, with their own descriptions."""
    found: dict[str, MetricText] = {}
    for _, result in finished:
        for metric in result["metrics"]:
            described = {name: value for name, value in metric.items() if name != "structures"}
            found[metric["name"]] = MetricText(**described)  # type: ignore[typeddict-item]
    return list(found.values())


def _mean_by_name(tables: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(table[name] for table in tables) for name in tables[0]}
