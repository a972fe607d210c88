"""From finished cells to the content of a table: plain values that the exports and the report are made of."""

import os
import platform
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from fclseg import __version__
from fclseg.data.sites import Splits
from fclseg.presets import Preset
from fclseg.study.cache import Cache
from fclseg.study.cells import FULL, Dataset, Finetuning
from fclseg.study.plan import Planned, Request
from fclseg.study.scheduler import Failure
from fclseg.study.statistics import Run, compare, holm, summarise
from fclseg.study.tables import Table, TableRow, paper_dice

Entry = dict[str, Any]
Finished = list[tuple[Planned, dict[str, Any]]]


def empty_document(table: Table, rows: Sequence[TableRow], preset: Preset, command: str) -> dict[str, Any]:
    """A table without a single fine-tuning, which is all that some tables need."""
    return {
        "table": table.name,
        "title": table.title,
        "about": table.about,
        "symbol": table.symbol,
        "spread": table.spread,
        "labels": [],
        "readings": [],
        "baseline": None,
        "rows": [{"key": row.key, "title": row.title, "job": row.job} for row in rows],
        "entries": [],
        "curves": [],
        "pictures": [],
        "pretraining": [],
        "failures": [],
        "missing": 0,
        "settings": {"preset": preset_values(preset), "data": None},
        "seconds": 0.0,
        "command": command,
        "version": __version__,
        "machine": machine(),
    }


def study_document(
    request: Request, planned: Sequence[Planned], cache: Cache, failures: Sequence[Failure], command: str
) -> dict[str, Any]:
    """Everything there is to say about a table; ``study.json`` is exactly this."""
    finished = [(one, result) for one in planned if (result := cache.get(one.cell.key)) is not None]
    return empty_document(request.table, request.rows, request.rows[0].preset, command) | {
        "labels": list(request.labels),
        "readings": list(request.readings),
        "baseline": request.baseline,
        "entries": entries(request, finished),
        "curves": curves(finished),
        "pictures": pictures(finished, cache),
        "pretraining": pretraining_runs(planned, cache),
        "failures": [{"cell": one.cell.describe(), "reason": one.reason} for one in failures],
        "missing": len(planned) - len(finished),
        "settings": settings(request),
        "seconds": sum(result["seconds"] for _, result in finished),
    }


def entries(request: Request, finished: Finished) -> list[Entry]:
    """One entry for each row, number of labels and reading; comparisons are corrected within each reading."""
    found = []
    for reading in request.readings:
        family = [
            entry
            for labels in request.labels
            for row in request.rows
            if (entry := _entry(request, finished, row, labels, reading)) is not None
        ]
        values = {(entry["row"], entry["labels"]): _values(entry) for entry in family}
        tests = [_against_baseline(request, entry, values) for entry in family]
        corrected = holm([test and test.p for test in tests])
        for entry, test, p in zip(family, tests, corrected, strict=True):
            entry["comparison"] = asdict(replace(test, p_holm=p)) if test else None
        found += family
    return found


def _entry(request: Request, finished: Finished, row: TableRow, labels: int, reading: str) -> Entry | None:
    mine = [
        (one.cell, result)
        for one, result in finished
        if one.row.key == row.key and one.cell.labels == labels and one.cell.reading == reading
    ]
    if not mine:
        return None
    scores = [
        (Run(site, cell.fold, cell.seed), cell.pretraining and cell.pretraining.seed, value)
        for cell, result in mine
        for site, value in dice_by_site(cell, result).items()
    ]
    by_run = defaultdict(list)  # the same run from several pre-training seeds counts once: with its mean
    for run, _, value in scores:
        by_run[run].append(value)
    dice = {run: fmean(values) for run, values in sorted(by_run.items())}
    results = [result for _, result in mine]
    return {
        "row": row.key,
        "labels": labels,
        "reading": reading,
        "summary": asdict(summarise(dice, request.table.spread)) | {"fine_tunings": len(mine)},
        "structures": _mean_by_name([result["structures"] for result in results]),
        "hd95": _mean_by_name([result["hd95"] for result in results]),
        "paper": paper_dice(request.table.name, row.key, labels) if reading == FULL else None,  # it froze no encoder
        "runs": [run._asdict() | {"dice": value} for run, value in dice.items()],
        "scores": [run._asdict() | {"pretrain_seed": number, "dice": value} for run, number, value in scores],
    }


def dice_by_site(cell: Finetuning, result: dict[str, Any]) -> dict[str, float]:
    """A fine-tuning's Dice at the site it belongs to. One that belongs to no site (federated, centralised, transfer) is
    read at each site that holds out patients: on theirs alone."""
    if cell.site is not None:
        return {cell.site: result["dice"]}
    names = [f"dice_{structure}" for structure in result["structures"]]
    volumes = defaultdict(list)
    for volume in result["volumes"]:
        volumes[volume["patient"]].append(fmean(volume[name] for name in names))
    found = {}
    for site, patients in Splits.load(cell.data.splits).sites.items():
        if values := [fmean(volumes[patient]) for patient in patients if patient in volumes]:
            found[site] = fmean(values)
    return found


def _values(entry: Entry) -> dict[Run, float]:
    return {Run(run["site"], run["fold"], run["seed"]): run["dice"] for run in entry["runs"]}


def _against_baseline(request: Request, entry: Entry, values: dict[tuple[str, int], dict[Run, float]]):
    baseline = values.get((request.baseline, entry["labels"]))
    if entry["row"] == request.baseline or baseline is None:
        return None
    return compare(_values(entry), baseline)


def _mean_by_name(tables: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(table[name] for table in tables) for name in tables[0]} if tables else {}


def curves(finished: Finished) -> list[dict[str, Any]]:
    """The training loss by epoch, averaged over all fine-tunings of a row, label count and reading.

    Where their numbers of epochs differ (``finetune_steps``), the curve goes as far as all of them do.
    """
    groups = defaultdict(list)
    for one, result in finished:
        groups[one.row.key, one.cell.labels, one.cell.reading].append(result["losses"])
    return [
        {
            "row": row,
            "labels": labels,
            "reading": reading,
            "loss": [fmean(epoch) for epoch in zip(*losses, strict=False)],
        }
        for (row, labels, reading), losses in groups.items()
    ]


def pictures(finished: Finished, cache: Cache) -> list[dict[str, Any]]:
    """Where the predictions for the visual comparison are, relative to the study's folder."""
    found = {}
    for one, _ in finished:
        path = cache.attachment(one.cell.key, ".npz")
        place = (one.row.key, one.cell.labels, one.cell.reading)
        if place not in found and path.exists():
            names = dict(zip(("row", "labels", "reading"), place, strict=True))
            found[place] = names | {"file": str(path.relative_to(cache.root))}
    return list(found.values())


def pretraining_runs(planned: Sequence[Planned], cache: Cache) -> list[dict[str, Any]]:
    """The pre-trainings behind a table with their rounds, each once."""
    cells = [one.cell.pretraining for one in planned if one.cell.pretraining]
    found = [(cell, cache.get(key)) for key, cell in {cell.key: cell for cell in cells}.items()]
    return [
        {"job": cell.job, "seed": cell.seed, "name": cell.name, "seconds": result["seconds"], **result["run"]}
        for cell, result in found
        if result is not None
    ]


def preset_values(preset: Preset) -> dict[str, Any]:
    return {"name": preset.name, **preset.values()}


def settings(request: Request) -> dict[str, Any]:
    """What the figures depend on, for the reader of a report."""
    return {
        "preset": preset_values(request.rows[0].preset),
        "folds": request.folds,
        "seeds": request.seeds,
        "pretrain_seeds": request.pretrain_seeds,
        "data": _dataset(request.data),
        "target": None if request.target == request.data else _dataset(request.target),
    }


def _dataset(data: Dataset) -> dict[str, Any]:
    sites = {site: len(patients) for site, patients in Splits.load(data.splits).sites.items()}
    return {
        "name": data.root.name,
        "anatomy": data.anatomy.title,
        "structures": data.anatomy.legend(),
        "fingerprint": data.fingerprint,
        "sites": sites,
    }


def machine() -> dict[str, Any]:
    """The hardware, as far as a reader needs it to judge a duration."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return {"processor": model, "cores": os.cpu_count(), "python": sys.version.split()[0], "system": platform.system()}
