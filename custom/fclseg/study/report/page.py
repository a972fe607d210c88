"""Puts a page together: one for a study, for all studies of a folder, or for a pre-training run."""

import json
from pathlib import Path
from typing import Any

import jinja2

from fclseg.errors import FCLSegError
from fclseg.files import whole_lines, write_text
from fclseg.study.export import READINGS, find_entry, p_text, plus_minus
from fclseg.study.progress import duration
from fclseg.study.report import curves
from fclseg.study.report.pictures import comparison, legend

SIGNIFICANT = 0.05


def write_report(source: Path, out: Path | None = None) -> Path:
    """The page of a run folder, a study folder or a folder of studies; by default ``report.html`` inside it."""
    source = Path(source)
    studies, runs = read_source(source)
    out = Path(out) if out else source / "report.html"
    write_text(out, render(studies, runs))
    return out


def read_source(source: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The studies and runs that a folder holds, prepared for the template."""
    if (source / "rounds.jsonl").exists():
        return [], [read_run(source)]
    folders = (
        [source] if (source / "study.json").exists() else sorted(path.parent for path in source.glob("*/study.json"))
    )
    if not folders:
        raise FCLSegError(
            f"{source} holds neither a study (study.json) nor a run (rounds.jsonl): give the folder that "
            f"'fclseg study' or 'fclseg pretrain' named when it finished"
        )
    documents = [(json.loads((folder / "study.json").read_text()), folder.parent) for folder in folders]
    runs = {run["name"]: run for document, _ in documents for run in document["pretraining"]}
    return [prepare(document, root) for document, root in documents], [prepare_run(run) for run in runs.values()]


def read_run(folder: Path) -> dict[str, Any]:
    """A run of ``fclseg pretrain``."""
    config = json.loads((folder / "config.json").read_text()) if (folder / "config.json").exists() else {}
    rounds = [json.loads(line) for line in whole_lines(folder / "rounds.jsonl")]
    settings = config.get("settings", {})
    seconds = sum(one.get("seconds", 0.0) for one in rounds)
    run = {"name": folder.name, "job": settings.get("job", folder.name), "seed": settings.get("seed", 0)}
    return prepare_run(run | {"seconds": seconds, "rounds": rounds})


def prepare_run(run: dict[str, Any]) -> dict[str, Any]:
    return run | {"charts": [chart for chart in curves.run_charts(run["rounds"]) if chart]}


def prepare(study: dict[str, Any], root: Path) -> dict[str, Any]:
    """A study with everything the template shows."""
    readings = [
        {
            "name": reading,
            "title": READINGS[reading],
            "charts": [chart for chart in curves.efficiency(study, reading) if chart],
            "forests": [chart for chart in curves.differences(study, reading) if chart],
            "losses": [chart for chart in curves.losses(study, reading) if chart],
            "headline": headline(study, reading),
            "best": {n: best_row(study, n, reading) for n in study["labels"]},
        }
        for reading in study["readings"]
        if any(entry["reading"] == reading for entry in study["entries"])
    ]
    structures = list(dict.fromkeys(name for entry in study["entries"] for name in entry["structures"]))
    return study | {
        "shown": readings,
        "structures": structures,
        "legend": legend(study),
        "strips": comparison(study, root),
    }


def best_row(study: dict[str, Any], labels: int, reading: str) -> str | None:
    entries = [find_entry(study, row["key"], labels, reading) for row in study["rows"]]
    return max((entry for entry in entries if entry), key=lambda e: e["summary"]["mean"], default={"row": None})["row"]


def headline(study: dict[str, Any], reading: str) -> str:
    """What the comparisons say, in one honest sentence."""
    tests = [entry["comparison"] for entry in study["entries"] if entry["reading"] == reading and entry["comparison"]]
    tests = [test for test in tests if test["p_holm"] is not None]
    if not tests:
        return ""
    titles = {row["key"]: row["title"] for row in study["rows"]}
    better, worse = (
        sum(sign * test["difference"] > 0 and test["p_holm"] < SIGNIFICANT for test in tests) for sign in (1, -1)
    )
    baseline = titles[study["baseline"]]
    fewest, most = (choose(test["pairs"] for test in tests) for choose in (min, max))
    how = f"{len(tests)} paired comparisons, Holm-corrected p < {SIGNIFICANT}, at least {fewest} pairs each"
    if better or worse:
        return f"Better than {baseline}: {better}. Worse: {worse}. ({how})"
    none = f"No difference to {baseline} is established ({how})."
    if len(tests) * 2 / 2**most >= SIGNIFICANT:  # what the best test reaches when all its pairs agree
        none += f" With {most} pairs it could not be: more folds, sites or seeds are needed."
    return none


def render(studies: list[dict[str, Any]], runs: list[dict[str, Any]]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fclseg.study.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"duration": duration, "p_text": p_text}
    environment.globals |= {"plus_minus": plus_minus, "find_entry": find_entry}
    environment.globals |= {"READINGS": READINGS, "SIGNIFICANT": SIGNIFICANT}
    title = " · ".join(study["title"] for study in studies) or f"Pre-training run {runs[0]['name']}"
    return environment.get_template("page.html").render(title=title, studies=studies, runs=runs)
