"""Picture of Dice against payload per round and site: rows of studies by job and codec, and the paper's points.

    python benchmarks/dice_against_bytes.py studies/local/table.csv [MORE.csv ...] --labels 1 --mode full --figure FILE

A study with ``--also-plain --job-set codec=tiny`` has the rows with and without the codec. The payload is that of
networks of the paper's size with 10 sites (``fclseg bytes``), whatever the size of the networks in the study. Prints
one line per point.
"""

import argparse
import csv
from pathlib import Path

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.presets import get_codec
from fclseg.federation.payload import component_arrays, mean_traffic
from fclseg.methods.exchange import ROWS
from fclseg.presets import get_preset
from fclseg.study.tables import paper_tables

CODEC = "codec="
SITES = 10
"""As in the paper."""
Point = tuple[str, float, float]
"""Name, megabytes, Dice."""


def study_points(tables: list[Path], labels: int, mode: str) -> list[Point]:
    lines = [line for path in tables for line in csv.DictReader(path.read_text().splitlines())]
    chosen = {line["row"]: line for line in lines if line["labels"] == str(labels) and line["mode"] == mode}
    points = []
    for row, line in chosen.items():
        job, _, options = row.partition("@")
        settings = options.split(", ") if options else []
        if job not in ROWS or any(not setting.startswith(CODEC) for setting in settings):
            continue  # not pre-trained, or with settings that are not about bytes
        codec = settings[0].removeprefix(CODEC) if settings else None
        points.append((f"{job} {codec or ROWS[job].codec}", megabytes(job, codec), float(line["dice"])))
    return points


def paper_points(labels: int) -> list[Point]:
    paper = paper_tables()["communication"]
    if labels not in paper["labels"]:
        raise FCLSegError(f"the paper has no Dice for {labels} labels: choose one of {paper['labels']}")
    whole, place = paper["fcl_megabytes_per_round"], paper["labels"].index(labels)
    return [(job, share * whole, paper["dice"][job][place][0]) for job, share in paper["relative_to_fcl"].items()]


def megabytes(job: str, codec: str | None) -> float:
    preset, row = get_preset("paper"), ROWS[job]
    traffic = mean_traffic(
        row,
        component_arrays(row, preset),
        sites=SITES,
        rounds=range(preset.pretraining.rounds),
        calibration_rounds=preset.pretraining.calibration_rounds,
        codec=get_codec(codec or row.codec),
    )
    return traffic.counted / 1e6


def draw(series: dict[str, list[Point]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for (name, points), marker in zip(series.items(), "os", strict=True):
        axes.plot([size for _, size, _ in points], [dice for *_, dice in points], marker, label=name)
        for label, size, dice in points:
            axes.annotate(label, (size, dice), xytext=(4, 4), textcoords="offset points", fontsize=7)
    axes.set(xscale="log", xlabel="MB per round and site, networks of the paper's size", ylabel="Dice")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", type=Path, nargs="+", metavar="CSV", help="table.csv of one or more studies")
    parser.add_argument("--labels", type=int, default=1, metavar="N", help="labelled patients (default 1)")
    parser.add_argument("--mode", choices=("full", "frozen"), default="full")
    parser.add_argument("--figure", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    series = {
        "measured": study_points(arguments.tables, arguments.labels, arguments.mode),
        "paper": paper_points(arguments.labels),
    }
    for name, points in series.items():
        for label, size, dice in points:
            print(f"{name}: {label}: {size:.2f} MB, Dice {dice:.3f}", flush=True)
    if arguments.figure:
        draw(series, arguments.figure)


if __name__ == "__main__":
    main()
