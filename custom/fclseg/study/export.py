"""A table as Markdown for people, CSV for spreadsheets and JSON for programs."""

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path

from fclseg.files import write_text
from fclseg.study.document import Entry, MetricText, Study
from fclseg.text import cell

MODES = {"full": "full fine-tuning", "frozen": "frozen-encoder evaluation"}


def plus_minus(mean: float, sd: float | None) -> str:
    return f"{mean:.3f}" if sd is None else f"{mean:.3f} ± {sd:.3f}"


def p_text(p: float | None) -> str:
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def find_entry(study: Study, row: str, labels: int, mode: str) -> Entry | None:
    place = (row, labels, mode)
    return next((one for one in study["entries"] if (one["row"], one["labels"], one["mode"]) == place), None)


def markdown(study: Study) -> str:
    """All of a study's tables."""
    parts = [f"# {study['title']}\n\n{study['about']}"]
    if "components" in study:
        parts.append(_components(study))
    if "communication" in study:
        parts.append(_communication(study))
    for mode in study["modes"]:
        parts += _mode_tables(study, mode)
    if study["failures"]:
        lines = [f"- {one['cell']}: {one['reason']}" for one in study["failures"]]
        parts.append("\n".join(["Failed:", "", *lines]))
    parts.append(f"`{study['command']}`")
    return "\n\n".join(parts) + "\n"


def _mode_tables(study: Study, mode: str) -> list[str]:
    if not any(entry["mode"] == mode for entry in study["entries"]):
        return []
    shown = [part(study, mode) for part in (dice_table, comparison_table, structure_table)]
    return [f"## Dice, {MODES[mode]}", *shown, *filter(None, [hospital_table(study, mode)])]


def dice_table(study: Study, mode: str) -> str:
    """Mean and sd, with the paper's figure in brackets if there is one."""
    header = ["Method", *(f"{study['symbol']}={n}" for n in study["labels"]), "fine-tunings"]
    lines = []
    for row in study["rows"]:
        entries = [find_entry(study, row["key"], n, mode) for n in study["labels"]]
        if any(entries):
            count = sum(entry["summary"]["fine_tunings"] for entry in entries if entry)
            lines.append([row["title"], *map(_dice_cell, entries), str(count)])
    return table(header, lines)


def _dice_cell(entry: Entry | None) -> str:
    if entry is None:
        return "–"
    own = plus_minus(entry["summary"]["mean"], entry["summary"]["sd"])
    return own + (f" (paper {plus_minus(*entry['paper'])})" if entry["paper"] else "")


def comparison_table(study: Study, mode: str) -> str:
    """Paired differences to the baseline."""
    titles = {row["key"]: row["title"] for row in study["rows"]}
    lines = [
        [
            f"{titles[entry['row']]}, {study['symbol']}={entry['labels']}",
            f"{found['difference']:+.3f}",
            "–" if found["low"] is None else f"{found['low']:+.3f} to {found['high']:+.3f}",
            p_text(found["p"]),
            p_text(found["p_holm"]),
            str(found["pairs"]),
        ]
        for entry in study["entries"]
        if entry["mode"] == mode and (found := entry["comparison"])
    ]
    if not lines:
        return "No comparison: there is no second row with the same fine-tunings."
    baseline = titles[study["baseline"] or ""]
    return table([f"Against {baseline}", "difference", "95 % interval", "p (Wilcoxon)", "p (Holm)", "pairs"], lines)


def structure_table(study: Study, mode: str) -> str:
    """Every metric for each structure, averaged over all fine-tunings."""
    entries = [entry for entry in study["entries"] if entry["mode"] == mode]
    columns = metric_columns(study, entries)
    titles = {row["key"]: row["title"] for row in study["rows"]}
    lines = [
        [
            f"{titles[entry['row']]}, {study['symbol']}={entry['labels']}",
            *(figure(entry, metric, name) for metric, name in columns),
        ]
        for entry in entries
    ]
    heads = [
        f"{metric['title']} {name}" + (f", {metric['unit']}" if metric["unit"] else "") for metric, name in columns
    ]
    return table(["Means", *heads], lines)


def hospitals(study: Study) -> dict[str, str]:
    """The hospitals whose patients were scored, with the words of their column; none if there is only one."""
    data = study["settings"]["target"] or study["settings"]["data"]
    outside = data["outside"] if data else {}
    found = dict.fromkeys(name for entry in study["entries"] for name in entry["hospitals"])
    return {name: f"{name}, held out" if name in outside else name for name in found} if len(found) > 1 else {}


def hospital_table(study: Study, mode: str) -> str:
    """The Dice of each hospital's held-out patients, and that of the worst hospital."""
    if not (shown := hospitals(study)):
        return ""
    titles = {row["key"]: row["title"] for row in study["rows"]}
    lines = [
        [
            f"{titles[entry['row']]}, {study['symbol']}={entry['labels']}",
            *(f"{entry['hospitals'][name]:.3f}" if name in entry["hospitals"] else "–" for name in shown),
            f"{min(entry['hospitals'].values()):.3f}",
        ]
        for entry in study["entries"]
        if entry["mode"] == mode and entry["hospitals"]
    ]
    return table(["Dice of the patients of", *shown.values(), "worst"], lines)


def metric_columns(study: Study, entries: Iterable[Entry]) -> list[tuple[MetricText, str]]:
    """(metric, structure) pairs: the columns for which any entry has a figure."""
    return [
        (metric, name)
        for metric in study["metrics"]
        for name in dict.fromkeys(name for entry in entries for name in entry["metrics"].get(metric["name"], {}))
    ]


def figure(entry: Entry, metric: MetricText, structure: str) -> str:
    """One value with the metric's number of decimals; a dash if there is none."""
    value = entry["metrics"].get(metric["name"], {}).get(structure)
    return "–" if value is None else f"{value:.{metric['decimals']}f}"


def _components(study: Study) -> str:
    found, titles = study["components"], {row["key"]: row["title"] for row in study["rows"]}
    return table(["Method", *found["columns"]], [[titles[key], *words] for key, words in found["rows"].items()])


def _communication(study: Study) -> str:
    titles = {row["key"]: row["title"] for row in study["rows"]}
    lines = [
        [
            titles[key],
            f"{row['megabytes']:.3f}",
            f"{row['ratio']:.3f}",
            f"{row['paper_preset_megabytes']:.1f}",
            f"{row['paper_preset_ratio']:.3f}",
            "–" if row["paper_ratio"] is None else f"{row['paper_ratio']:.3f}",
        ]
        for key, row in study["communication"]["rows"].items()
    ]
    preset = study["settings"]["preset"]["name"]
    header = ["Method", f"MB per round, {preset}", "× FCL", "MB per round, paper sizes", "× FCL", "paper prints"]
    return table(header, lines)


def table(header: list[str], lines: Iterable[list[str]]) -> str:
    rows = [header, ["---", *["---:"] * (len(header) - 1)], *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def runs_csv(study: Study) -> str:
    """One line per fine-tuning and site it is scored at: the input for statistics in another program."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["table", "row", "mode", "labels", "site", "fold", "seed", "pretrain_seed", "dice"])
    for entry in study["entries"]:
        for score in entry["scores"]:
            place = [study["table"], entry["row"], entry["mode"], entry["labels"]]
            which = [score["site"], score["fold"], score["seed"], score["pretrain_seed"]]
            writer.writerow([*place, *map(cell, which), f"{score['dice']:.6f}"])
    return stream.getvalue()


def table_csv(study: Study) -> str:
    """One line per cell of the table, with the paper's figure and the comparison."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    columns = metric_columns(study, study["entries"])
    compared = ("pairs", "difference", "low", "high", "p", "p_holm")
    names = [f"{metric['column']}_{name}" for metric, name in columns]
    head = ["row", "mode", "labels", "dice", "sd", "groups", "fine_tunings", "paper_dice", "paper_sd"]
    writer.writerow([*head, *compared, *names])
    for entry in study["entries"]:
        summary, found = entry["summary"], dict(entry["comparison"] or {})
        line = [entry["row"], entry["mode"], entry["labels"]]
        line += [summary[name] for name in ("mean", "sd", "groups", "fine_tunings")] + list(entry["paper"] or ("", ""))
        line += [found.get(name, "") for name in compared]
        line += [entry["metrics"].get(metric["name"], {}).get(name, "") for metric, name in columns]
        writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in line])
    return stream.getvalue()


def write_exports(study: Study, folder: Path) -> None:
    """``study.json`` (everything), ``table.md``, ``table.csv`` and ``runs.csv``."""
    write_text(folder / "study.json", json.dumps(study, indent=1))
    write_text(folder / "table.md", markdown(study))
    write_text(folder / "table.csv", table_csv(study))
    write_text(folder / "runs.csv", runs_csv(study))
