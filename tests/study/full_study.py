"""A finished study without any training: rows with and without a filter, four label counts, both modes, pictures."""

from pathlib import Path
from typing import Any

import numpy as np

from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.sites import Splits
from fclseg.presets import get_preset
from fclseg.study.cache import Cache
from fclseg.study.cells import Dataset
from fclseg.study.export import write_exports
from fclseg.study.job_options import FilterSpec, JobOptions
from fclseg.study.plan import Request, plan
from fclseg.study.results import study_document
from fclseg.study.tables import TABLES, table_rows

NOISE = FilterSpec("fclseg.flare.filters.ClipAndNoise", (("clip", 1), ("sigma", 0.1)))
METRICS = [
    {"name": "dice", "title": "Dice", "column": "dice", "unit": "", "decimals": 3, "note": ""},
    {
        "name": "hd95",
        "title": "HD95",
        "column": "hd95_mm",
        "unit": "mm",
        "decimals": 1,
        "note": "Missed: the diagonal.",
    },
]


def scored(**structures: dict[str, float]) -> list[dict[str, Any]]:
    """The metrics of a result, by name, with their means per structure."""
    return [metric | {"structures": structures[metric["name"]]} for metric in METRICS if metric["name"] in structures]


def rings(shift: int = 0, thickness: int = 4) -> np.ndarray:
    """A slice [48, 48] with a left ventricle (3), its wall (2) and a right ventricle (1)."""
    rows, columns = np.mgrid[:48, :48]
    labels = np.zeros((48, 48), np.uint8)
    labels[np.hypot(rows - 24, columns - 14 - shift) < 7] = 1
    labels[np.hypot(rows - 24, columns - 28 - shift) < 6 + thickness] = 2
    labels[np.hypot(rows - 24, columns - 28 - shift) < 6] = 3
    return labels


METHODS = ("random", "fedbyol", "fclopt_dp")


def write_study(folder: Path, methods: tuple[str, ...] = METHODS) -> dict[str, Any]:
    """Cells, pictures and exports of the local table below ``folder``, with and without a filter."""
    Splits.make([f"p{i:02d}" for i in range(40)], sites=4, folds=5).save(folder / "splits.json")
    fill_cells(folder, methods)
    return write_tables(folder, methods)


def ask(folder: Path, methods: tuple[str, ...] = METHODS) -> Request:
    splits = folder / "splits.json"
    data = Dataset(folder / "images", ANATOMIES["acdc"], splits, "fingerprint")
    options = JobOptions((("fraction", 0.5),), (NOISE,))
    rows = tuple(table_rows(TABLES["local"], methods, get_preset("demo"), options, plain=True))
    modes = ("full", "frozen")
    return Request(TABLES["local"], rows, (1, 2, 4, 8), 2, 1, 1, modes, data, data, "random")


def write_tables(folder: Path, methods: tuple[str, ...] = METHODS) -> dict[str, Any]:
    """From the stored cells."""
    request = ask(folder, methods)
    command = "fclseg study local --preset demo --mode full,frozen"
    document = study_document(request, plan(request), Cache(folder), [], command)
    write_exports(document, folder / "local")
    return document


def fill_cells(folder: Path, methods: tuple[str, ...] = METHODS) -> None:
    request = ask(folder, methods)
    cache, planned = Cache(folder), plan(request)
    random = np.random.default_rng(0)
    gains = {row.key: 0.02 * number for number, row in enumerate(request.rows)}
    for one in planned:
        cell = one.cell
        dice = 0.2 + 0.1 * np.log2(cell.labels) + gains[one.row.key] / 2 + 0.02 * random.normal()
        figures = dict(zip(("RV", "MYO", "LV"), (dice - 0.1, dice, dice + 0.1), strict=True))
        distances = {name: 40 * (1 - value) for name, value in figures.items()}
        metrics = [metric | {"structures": v} for metric, v in zip(METRICS, (figures, distances), strict=True)]
        losses = list(np.geomspace(2.5, 0.4, 30))
        cache.put(cell.key, {"dice": dice, "metrics": metrics, "losses": losses, "seconds": 2.0})
        if cell.fold == 0 and cell.site == "site-1":
            image = random.normal(0.3, 0.05, (48, 48)) + 0.4 * (rings() == 3)
            path = cache.attachment(cell.key, ".npz")
            arrays = {"image": image, "truth": rings(), "prediction": rings(shift=int(10 * (1 - dice)))}
            np.savez_compressed(path, caption=np.array("p00, ED slice 5"), **arrays)
        if cell.pretraining:
            cache.put(cell.pretraining.key, {"seconds": 60.0, "rounds": [one_round(n) for n in range(8)]})


def one_round(number: int) -> dict[str, Any]:
    counts = {"payload": {"online": 4e6, "predictor": 1e6}, "wire": 5.2e6}
    sites = {f"site-{n}": {"loss": 2.0 / (number + n), "feature_std": 0.1 * n} for n in range(1, 5)}
    return {
        "round": number,
        "sites": sites,
        "d": 0.01 * number,
        "bytes": {site: {"up": counts, "down": counts} for site in sites},
    }
