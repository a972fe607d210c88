"""Assembles the page of a study, of all studies in a folder, or of a pre-training run."""

import time
from pathlib import Path
from typing import Any

import jinja2

from fclseg import __version__
from fclseg.documents import read_json, read_json_lines, understood
from fclseg.errors import FCLSegError
from fclseg.files import write_text
from fclseg.study.document import Entry, RunRecord, Study, read_study
from fclseg.study.export import MODES, figure, find_entry, hospitals, metric_columns, p_text
from fclseg.study.progress import duration
from fclseg.study.report import curves
from fclseg.study.report.pictures import comparison, legend

SIGNIFICANT = 0.05
DAMAGED = "restore it from a backup, or run the command that made the folder again"


def write_report(source: Path, out: Path | None = None, *, command: str = "", names: bool = False) -> Path:
    """The page of a run folder, a study folder or a folder of studies; by default ``report.html`` inside it.

    ``command`` is the command that writes the page; the page shows it. ``names``: show the names of the patients in the
    pictures. By default they are hidden, because reports are sent by mail."""
    source = Path(source)
    out = Path(out) if out else source / "report.html"
    try:
        with understood(source, DAMAGED):
            page = render(*read_source(source, names), command)
    except jinja2.TemplateError as error:  # the template needs an entry that is missing
        raise FCLSegError(f"{source}: is damaged ({error}); {DAMAGED}") from None
    write_text(out, page)
    return out


def read_source(source: Path, names: bool = False) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The studies and runs in a folder, prepared for the template."""
    if (source / "rounds.jsonl").exists():
        return [], [read_run(source)]
    folders = (
        [source] if (source / "study.json").exists() else sorted(path.parent for path in source.glob("*/study.json"))
    )
    if not folders:
        raise FCLSegError(
            f"{source} contains neither a study (study.json) nor a run (rounds.jsonl): give the folder that "
            f"'fclseg study' or 'fclseg pretrain' printed when it finished"
        )
    documents = [(read_study(folder / "study.json"), folder.parent) for folder in folders]
    runs = {run["name"]: run for document, _ in documents for run in document["pretraining"]}
    return [prepare(document, root, names) for document, root in documents], [prepare_run(run) for run in runs.values()]


def read_run(folder: Path) -> dict[str, Any]:
    """A run of ``fclseg pretrain``."""
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    rounds = read_json_lines(folder / "rounds.jsonl")
    settings = config.get("settings", {})
    seconds = sum(one.get("seconds", 0.0) for one in rounds)
    job, seed = settings.get("job", folder.name), settings.get("seed", 0)
    return prepare_run(
        {"name": folder.name, "job": job, "seed": seed, "options": "", "seconds": seconds, "rounds": rounds}
    )


def prepare_run(run: RunRecord) -> dict[str, Any]:
    return run | {"charts": [chart for chart in curves.run_charts(run["rounds"]) if chart]}


def prepare(study: Study, root: Path, names: bool = False) -> dict[str, Any]:
    """A study with everything the template shows."""
    modes = [
        {
            "name": mode,
            "title": MODES[mode],
            "charts": [chart for chart in curves.efficiency(study, mode) if chart],
            "forests": [chart for chart in curves.differences(study, mode) if chart],
            "losses": [chart for chart in curves.losses(study, mode) if chart],
            "headline": headline(study, mode),
            "paper": any(entry["paper"] for entry in study["entries"] if entry["mode"] == mode),
        }
        for mode in study["modes"]
        if any(entry["mode"] == mode for entry in study["entries"])
    ]
    return study | {"shown": modes, "legend": legend(study), "strips": comparison(study, root, names)}


def established(entry: Entry) -> bool:
    """Whether a row's Dice is significantly higher than the baseline's, after Holm's correction."""
    found = entry["comparison"]
    return bool(found and found["difference"] > 0 and found["p_holm"] is not None and found["p_holm"] < SIGNIFICANT)


def headline(study: Study, mode: str) -> str:
    """The outcome of the comparisons in one sentence."""
    found = [entry["comparison"] for entry in study["entries"] if entry["mode"] == mode and entry["comparison"]]
    tests = [(test, test["p_holm"]) for test in found if test["p_holm"] is not None]
    if not tests:
        return ""
    titles = {row["key"]: row["title"] for row in study["rows"]}
    better, worse = (sum(sign * test["difference"] > 0 and p < SIGNIFICANT for test, p in tests) for sign in (1, -1))
    baseline = titles[study["baseline"] or ""]
    fewest, most = (choose(test["pairs"] for test, _ in tests) for choose in (min, max))
    how = f"{len(tests)} paired comparisons, Holm-corrected p < {SIGNIFICANT}, at least {fewest} pairs each"
    if better or worse:
        return f"Better than {baseline}: {better}. Worse: {worse}. ({how})"
    none = f"No difference to {baseline} is established ({how})."
    if len(tests) * 2 / 2**most >= SIGNIFICANT:  # the smallest p that the test can reach, when all its pairs agree
        none += f" {most} pairs are too few for that: more folds, sites or seeds are needed."
    return none


def render(studies: list[dict[str, Any]], runs: list[dict[str, Any]], command: str = "") -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fclseg.study.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"duration": duration, "p_text": p_text}
    environment.globals |= {"find_entry": find_entry, "established": established, "figure": figure}
    environment.globals |= {
        "metric_columns": metric_columns,
        "hospitals": hospitals,
        "MODES": MODES,
        "SIGNIFICANT": SIGNIFICANT,
    }
    written = {"date": time.strftime("%Y-%m-%d %H:%M %Z"), "version": __version__, "command": command}
    title = " · ".join(study["title"] for study in studies) or f"Pre-training run {runs[0]['name']}"
    return environment.get_template("page.html").render(title=title, studies=studies, runs=runs, written=written)
