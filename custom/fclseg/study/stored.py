"""Reads what earlier versions wrote, under today's names: results of cells and whole study documents.

Version 0.1 stored Dice and HD95 under separate keys and called the mode of an evaluation its "reading".
"""

from typing import Any

from fclseg.anatomy.registry import ANATOMIES, DEFAULT
from fclseg.errors import FCLSegError
from fclseg.presets import full_name

DICE = {"name": "dice", "title": "Dice", "column": "dice", "unit": "", "decimals": 3, "note": ""}
HD95 = {
    "name": "hd95",
    "title": "HD95",
    "column": "hd95_mm",
    "unit": "mm",
    "decimals": 1,
    "note": "If a prediction misses a structure completely, its distance is the diagonal of the volume.",
}
FIRST_METRICS = {"structures": DICE, "hd95": HD95}
"""The metrics of version 0.1, by the key of their means per structure."""


def present_result(result: dict[str, Any]) -> dict[str, Any]:
    """The result of a fine-tuning of any version, with its list of metrics."""
    if "metrics" in result:
        return result
    found = [metric | {"structures": result[key]} for key, metric in FIRST_METRICS.items() if result.get(key)]
    return result | {"metrics": found}


def present_document(study: dict[str, Any]) -> dict[str, Any]:
    """A ``study.json`` of any version, with everything that exports and reports need."""
    renamed = {"modes": study.get("readings", []), "metrics": list(FIRST_METRICS.values()), "date": None} | study
    lists = {name: [_with_mode(one) for one in study[name]] for name in ("entries", "curves", "pictures")}
    lists["entries"] = [_with_metrics(entry) for entry in lists["entries"]]
    lists["pretraining"] = [{"job": run.get("method"), "options": ""} | run for run in study["pretraining"]]
    return renamed | lists | {"settings": _settings(study["settings"])}


def _with_mode(place: dict[str, Any]) -> dict[str, Any]:
    return {"mode": place.get("reading")} | place


def _with_metrics(entry: dict[str, Any]) -> dict[str, Any]:
    found = {metric["name"]: entry[key] for key, metric in FIRST_METRICS.items() if entry.get(key)}
    return {"metrics": found} | entry


def _settings(settings: dict[str, Any]) -> dict[str, Any]:
    preset = {_full_name(name): value for name, value in settings["preset"].items()}
    data = {name: _dataset(settings[name]) for name in ("data", "target") if settings.get(name)}
    return {"target": None, "job": {}, **settings, **data, "preset": preset}


def _full_name(name: str) -> str:
    """``group.field`` if the setting still exists."""
    try:
        return full_name(name)
    except FCLSegError:
        return name


def _dataset(data: dict[str, Any]) -> dict[str, Any]:
    """Version 0.1 stored the layout of a folder, and a plain folder had the labels of the default anatomy."""
    anatomy = ANATOMIES.get(data.get("layout", DEFAULT), ANATOMIES[DEFAULT])
    return {"anatomy": anatomy.title, "structures": anatomy.legend() or ANATOMIES[DEFAULT].legend()} | data
