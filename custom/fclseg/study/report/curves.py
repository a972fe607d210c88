"""The charts of a page: label efficiency, differences, and what happened during training."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from markupsafe import Markup

from fclseg.charts import Effect, Series, forest, line_chart, stacked_bars
from fclseg.study.cells import FULL
from fclseg.study.document import Round, Study
from fclseg.study.export import MODES, find_entry


def efficiency(study: Study, mode: str) -> list[Markup]:
    """Dice over the number of labelled patients, with sd as error bars, and the paper's curve for comparison."""
    ours, paper = [], []
    for colour, row in enumerate(study["rows"]):
        entries = [find_entry(study, row["key"], n, mode) for n in study["labels"]]
        found = [entry for entry in entries if entry]
        x = [entry["labels"] for entry in found]
        means, spreads = ([entry["summary"][name] for entry in found] for name in ("mean", "sd"))
        ours.append(Series(row["title"], x, means, spreads, colour=colour))
        known = [(entry["labels"], *entry["paper"]) for entry in found if entry["paper"]]
        labels, theirs, their_spreads = ([figures[i] for figures in known] for i in range(3))
        paper.append(Series(row["title"], labels, theirs, their_spreads, dashed=True, colour=colour))
    x_label = f"labelled patients ({study['symbol']})"
    name = MODES[mode]
    charts = [line_chart(f"Dice, {name}, this study", ours, x_label, "Dice", categories=True)]
    if mode == FULL:
        charts.append(line_chart("Dice printed in the paper", paper, x_label, "Dice", categories=True))
    return charts


def differences(study: Study, mode: str) -> list[Markup]:
    """A forest plot of paired differences to the baseline for each number of labels."""
    titles = {row["key"]: row["title"] for row in study["rows"]}
    colours = {row["key"]: i for i, row in enumerate(study["rows"])}
    charts = []
    for labels in study["labels"]:
        effects = [
            Effect(
                titles[e["row"]],
                e["comparison"]["difference"],
                e["comparison"]["low"],
                e["comparison"]["high"],
                colours[e["row"]],
            )
            for e in study["entries"]
            if (e["labels"], e["mode"]) == (labels, mode) and e["comparison"]
        ]
        title = f"Difference to {titles.get(study['baseline'] or '', '')}, {study['symbol']}={labels}"
        charts.append(forest(title, effects, "mean Dice difference, 95 % interval"))
    return charts


def losses(study: Study, mode: str) -> list[Markup]:
    """Training loss of fine-tuning by epoch (federated: by round), to see whether all rows have converged."""
    step = "round" if study["table"] == "federated" else "epoch"
    colours = {row["key"]: (i, row["title"]) for i, row in enumerate(study["rows"])}
    charts = []
    for labels in study["labels"]:
        mine = [one for one in study["curves"] if (one["labels"], one["mode"]) == (labels, mode)]
        series = [
            Series(colours[one["row"]][1], range(1, len(one["loss"]) + 1), one["loss"], colour=colours[one["row"]][0])
            for one in mine
        ]
        title = f"Training loss, {MODES[mode]}, {study['symbol']}={labels}"
        charts.append(line_chart(title, series, step, "loss", zero=True))
    return charts


def run_charts(rounds: Sequence[Round]) -> list[Markup]:
    """What happened in a pre-training: loss and feature spread by site, distances, bytes."""
    if not rounds:
        return []
    x = [one["round"] + 1 for one in rounds]
    sites = sorted({site for one in rounds for site in one["sites"]})

    def by_site(name: str) -> list[Series]:
        return [Series(site, x, [one["sites"].get(site, {}).get(name) for one in rounds]) for site in sites]

    exact = Series("d, exact", x, [one.get("d") for one in rounds])
    predicted = Series("d~, predicted", x, [one.get("d_predicted") for one in rounds], dashed=True)
    parts, wire = traffic(rounds)
    return [
        line_chart("Pre-training loss by site", by_site("loss"), "round", "loss"),
        line_chart("Spread of features (0: collapsed)", by_site("feature_std"), "round", "feature std", zero=True),
        line_chart(
            "Distance between online and target network", [exact, predicted], "round", "mean |difference|", zero=True
        ),
        stacked_bars("Payload per site and round by component", x, parts, "round", "MB"),
        line_chart("On the wire, per site and round", [Series("measured", x, wire)], "round", "MB", zero=True),
    ]


def traffic(rounds: Sequence[Round]) -> tuple[dict[str, list[float]], list[float | None]]:
    """Megabytes per site and round: payload by component and direction, and the total measured on the wire."""
    names = sorted(
        {
            (way, component)
            for one in rounds
            for counts in one.get("bytes", {}).values()
            for way in ("up", "down")
            for component in counts[way]["payload"]
        },
        reverse=True,
    )

    def took_part(counts: dict[str, Any]) -> bool:  # a site that is left out of a round still polls for work
        return bool(counts["up"]["payload"] or counts["down"]["payload"])

    def mean(one: dict[str, Any], read: Callable[..., float]) -> float:
        values = [read(counts) for counts in one.get("bytes", {}).values() if took_part(counts)]
        return fmean(values) / 1e6 if values else 0.0

    arrows = {"up": "↑", "down": "↓"}
    payload = {
        f"{arrows[way]} {component}": [
            mean(one, lambda c, w=way, n=component: c[w]["payload"].get(n, 0)) for one in rounds
        ]
        for way, component in names
    }
    wire = [mean(one, lambda c: c["up"]["wire"] + c["down"]["wire"]) or None for one in rounds]
    return payload, wire
