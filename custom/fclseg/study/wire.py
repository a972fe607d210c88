"""The two tables on communication: components from the exchange plan, bytes from the real networks."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fclseg.methods.exchange import ALWAYS, CALIBRATION, DISTANCE, NEVER, ROWS, Flow
from fclseg.presets import Preset, get_preset
from fclseg.study.cache import Cache
from fclseg.study.cells import content_key
from fclseg.study.document import Communication, Components
from fclseg.study.tables import paper_tables

COLUMNS = ("online", "predictor", "target", "features")
NAMES = {"bank": "features", "dictionary": "features"}
"""Components that are encoded representations (features), with the method's name for them."""
PAPER_SITES = 10


def components_table(methods: Sequence[str]) -> Components:
    """One row of words per method, with the paper's words."""
    plans = {method: _words(ROWS[method].flows) for method in methods if method in ROWS}
    further = sorted({name for words in plans.values() for name in words} - set(COLUMNS))
    columns = [*COLUMNS, *further]
    paper = paper_tables()["components"]
    return {
        "columns": columns,
        "rows": {method: [words.get(name, "") for name in columns] for method, words in plans.items()},
        "paper": {
            method: [dict(zip(paper["columns"], words, strict=True)).get(name, "") for name in columns]
            for method, words in paper["rows"].items()
            if method in plans
        },
    }


def _words(flows: Sequence[Flow]) -> dict[str, str]:
    return {NAMES.get(flow.component, flow.component): _word(flow) for flow in flows}


def _word(flow: Flow) -> str:
    if flow.component == DISTANCE:
        return {(ALWAYS, ALWAYS): "both ways", (NEVER, ALWAYS): "download only"}[flow.up, flow.down]
    if flow.up == flow.down == ALWAYS:
        return "yes"
    if flow.up == CALIBRATION:
        return "almost none"
    return "upload only" if flow.down == NEVER else "download only"


def communication_figures(methods: Sequence[str], preset: Preset, sites: int, cache: Cache) -> Communication:
    """Payload per round and site of each method: at the study's sizes and at the paper's, with the paper's ratio."""
    paper = paper_tables()["communication"]
    ours = payload(preset, sites, cache)
    full = payload(get_preset("paper"), PAPER_SITES, cache)
    return {
        "sites": sites,
        "rows": {
            method: {
                "megabytes": ours[method]["payload_mb"],
                "ratio": ours[method]["ratio"],
                "up": ours[method]["up_mb"],
                "down": ours[method]["down_mb"],
                "paper_preset_megabytes": full[method]["payload_mb"],
                "paper_preset_ratio": full[method]["ratio"],
                "paper_ratio": paper["relative_to_fcl"].get(method),
            }
            for method in methods
            if method in ROWS
        },
    }


def payload(preset: Preset, sites: int, cache: Cache) -> dict[str, dict[str, Any]]:
    """The communication table by job. Building every network takes seconds, so the table is cached like a cell."""
    plan = {job: asdict(row) for job, row in ROWS.items()}
    key = content_key({"kind": "payload", "preset": preset.values(), "sites": sites, "plan": plan})
    if (known := cache.get(key)) is None:
        from fclseg.federation.payload import communication_table  # imports torch

        known = {row["job"]: row for row in communication_table(preset, sites=sites).values()}
        cache.put(key, known)
    return known
