"""Turns finished cells into the content of a table: plain values for the exports and the report."""

import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from math import isfinite
from statistics import fmean
from typing import Any

from fclseg import __version__
from fclseg.data.sites import Splits
from fclseg.device import processor
from fclseg.documents import understood
from fclseg.presets import Preset
from fclseg.study.cache import AGAIN, Cache
from fclseg.study.cells import FORMAT, Dataset, Finetuning, Pretraining
from fclseg.study.document import (
    Curve,
    DatasetFacts,
    FinetuningResult,
    Picture,
    PretrainingResult,
    RunRecord,
    Study,
    StudySettings,
)
from fclseg.study.entries import Finished, dice_by_site, entries, metric_descriptions
from fclseg.study.job_options import PLAIN
from fclseg.study.plan import Planned, Request
from fclseg.study.scheduler import Failure
from fclseg.study.tables import SEEN, UNSEEN, Table, TableRow


def empty_document(table: Table, rows: Sequence[TableRow], preset: Preset, command: str) -> Study:
    """The document of a table without fine-tunings, which is complete for some tables."""
    return {
        "format": FORMAT,
        "table": table.name,
        "title": table.title,
        "about": table.about,
        "symbol": table.symbol,
        "spread": table.spread,
        "labels": [],
        "modes": [],
        "metrics": [],
        "baseline": None,
        "rows": [{"key": row.key, "title": row.title, "job": row.job} for row in rows],
        "entries": [],
        "curves": [],
        "pictures": [],
        "pretraining": [],
        "failures": [],
        "missing": 0,
        "settings": {"preset": preset_values(preset), "data": None, "target": None, "job": {}},
        "seconds": 0.0,
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
        "command": command,
        "version": __version__,
        "machine": machine(),
    }


def study_document(
    request: Request, planned: Sequence[Planned], cache: Cache, failures: Sequence[Failure], command: str
) -> Study:
    """Everything about a table. ``study.json`` is exactly this."""
    stored = [(one, cache.get(one.cell.key)) for one in planned]
    finished = [(one, _checked(one.cell, result, cache)) for one, result in stored if result is not None]
    empty = empty_document(request.table, request.rows, request.rows[0].preset, command)
    return {
        **empty,
        "about": request.table.about.replace(SEEN, UNSEEN) if request.unseen else request.table.about,
        "labels": list(request.labels),
        "modes": list(request.modes),
        "metrics": metric_descriptions(finished),
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


def _checked(cell: Finetuning, result: FinetuningResult, cache: Cache) -> FinetuningResult:
    """A stored result. Raises with the file's name if it lacks what the table needs."""
    with understood(cache.path(cell.key), AGAIN):
        figures = [*dice_by_site(cell, result).values(), result["seconds"]]
        tables = {metric["name"]: metric["structures"] for metric in result["metrics"]}
        figures += [value for table in tables.values() for value in table.values()]
        if not all(map(isfinite, figures)):
            raise ValueError("a figure is not finite")
        fmean([0.0, *result["losses"]])  # numbers, all of them
    return result


def curves(finished: Finished) -> list[Curve]:
    """The training loss by epoch, averaged over all fine-tunings of a row, label count and mode.

    If their numbers of epochs differ (``finetuning.steps``), the curve ends with the shortest.
    """
    groups = defaultdict(list)
    for one, result in finished:
        if result["losses"]:
            groups[one.row.key, one.cell.labels, one.cell.mode].append(result["losses"])
    return [
        {
            "row": row,
            "labels": labels,
            "mode": mode,
            "loss": [fmean(epoch) for epoch in zip(*losses, strict=False)],
        }
        for (row, labels, mode), losses in groups.items()
    ]


def pictures(finished: Finished, cache: Cache) -> list[Picture]:
    """Paths of the predictions for the visual comparison, relative to the study's folder."""
    found: dict[tuple[str, int, str], Picture] = {}
    for one, _ in finished:
        path = cache.attachment(one.cell.key, ".npz")
        row, labels, mode = place = (one.row.key, one.cell.labels, one.cell.mode)
        if place not in found and path.exists():
            found[place] = {"row": row, "labels": labels, "mode": mode, "file": str(path.relative_to(cache.root))}
    return list(found.values())


def pretraining_runs(planned: Sequence[Planned], cache: Cache) -> list[RunRecord]:
    """The pre-trainings of a table with their rounds, each once."""
    cells = [one.cell.pretraining for one in planned if one.cell.pretraining]
    found = [(cell, cache.get(key)) for key, cell in {cell.key: cell for cell in cells}.items()]
    return [_run(cell, result, cache) for cell, result in found if result is not None]


def _run(cell: Pretraining, result: PretrainingResult, cache: Cache) -> RunRecord:
    with understood(cache.path(cell.key), AGAIN):
        return {
            "job": cell.job,
            "options": str(cell.options),
            "seed": cell.seed,
            "name": cell.name,
            "seconds": float(result["seconds"]),
            "rounds": result["rounds"],
        }


def preset_values(preset: Preset) -> dict[str, Any]:
    return {"name": preset.name, **preset.values()}


def settings(request: Request) -> StudySettings:
    """The settings that the figures depend on, for the report."""
    return {
        "preset": preset_values(request.rows[0].preset),
        "folds": request.folds,
        "seeds": request.seeds,
        "pretrain_seeds": request.pretrain_seeds,
        "unseen": request.unseen,
        "data": _dataset(request.data),
        "target": None if request.target == request.data else _dataset(request.target),
        "job": next((row.options for row in request.rows if row.options), PLAIN).document(),
    }


def _dataset(data: Dataset) -> DatasetFacts:
    splits = Splits.load(data.splits)
    return {
        "name": data.root.name,
        "anatomy": data.anatomy.title,
        "structures": data.anatomy.legend(),
        "fingerprint": data.fingerprint,
        "sites": {site: len(patients) for site, patients in splits.sites.items()},
        "outside": {site: len(patients) for site, patients in splits.outside.items()},
    }


def machine() -> dict[str, Any]:
    """The hardware, so that a reader can judge the durations."""
    python = sys.version.split()[0]
    return {"processor": processor(), "cores": os.cpu_count(), "python": python, "system": platform.system()}
