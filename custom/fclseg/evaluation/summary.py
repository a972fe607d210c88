"""Figures of a set of patients: mean and worst, by hospital, by group, and over hospitals."""

from collections.abc import Callable, Sequence
from typing import Any

from fclseg.anatomy.base import Anatomy
from fclseg.evaluation.scores import ScoreRow, mean
from fclseg.inference.measure import cavities

BAD_DICE, BAD_EF = 0.75, 10.0
"""A result is bad below this Dice, or if the first cavity's ejection fraction is off by more points than this."""


def summarise(rows: Sequence[ScoreRow], anatomy: Anatomy) -> dict[str, Any]:
    """The figures of some patients; None where nothing is known."""
    worst = min((row for row in rows if row["dice"] is not None), key=lambda row: row["dice"], default=None)
    figures: dict[str, Any] = {"patients": len(rows), "dice": mean([row["dice"] for row in rows])}
    figures |= {f"dice_{name}": mean([row[f"dice_{name}"] for row in rows]) for name in anatomy.names}
    figures |= {"lowest": worst and worst["dice"], "lowest_patient": worst and worst["patient"]}
    figures |= {f"hd95_{name}": mean([row[f"hd95_{name}"] for row in rows]) for name in anatomy.names}
    for column in (name for name in (rows[0] if rows else ()) if name.startswith("volume_percent_")):
        figures[column] = mean([row[column] for row in rows])
    for one in cavities(anatomy):
        errors = [error for row in rows if (error := ef_error(row, one.structure)) is not None]
        figures[f"ef_{one.structure}_error"] = mean([abs(error) for error in errors])
        figures[f"ef_{one.structure}_bias"] = mean(errors)
    return figures | _flags(rows, anatomy)


def ef_error(row: ScoreRow, structure: str) -> float | None:
    """Found minus true ejection fraction in points."""
    found, true = row[f"ef_{structure}"], row[f"true_ef_{structure}"]
    return None if found is None or true is None else found - true


def is_bad(row: ScoreRow, anatomy: Anatomy) -> bool:
    """Whether a person should have looked at this result."""
    first = [ef_error(row, one.structure) for one in cavities(anatomy)[:1]]
    return (row["dice"] or 0) < BAD_DICE or any(error is not None and abs(error) > BAD_EF for error in first)


def _flags(rows: Sequence[ScoreRow], anatomy: Anatomy) -> dict[str, Any]:
    """How many bad and good results were flagged, if the results have flags."""
    known = [row for row in rows if row["look_at"] is not None]
    if not known:
        return {}
    bad = [row for row in known if is_bad(row, anatomy)]
    good = [row for row in known if not is_bad(row, anatomy)]
    counts = {"bad": len(bad), "bad_flagged": sum(bool(row["look_at"]) for row in bad)}
    return counts | {"good": len(good), "good_flagged": sum(bool(row["look_at"]) for row in good)}


def by(rows: Sequence[ScoreRow], column: str, anatomy: Anatomy) -> dict[str, dict[str, Any]]:
    """The figures for each value of a column, such as ``hospital``; patients without one are left out."""
    values = sorted({row[column] for row in rows if row[column]})
    return {value: summarise([row for row in rows if row[column] == value], anatomy) for value in values}


def mean_and_worst(kinds: dict[str, dict[str, Any]], figure: str = "dice") -> tuple[float | None, str | None]:
    """The mean of a figure over hospitals or groups, each counted once, and the one with the lowest."""
    known = {name: one[figure] for name, one in kinds.items() if one[figure] is not None}
    return mean(list(known.values())), min(known, key=lambda name: known[name]) if known else None


def table(parts: dict[str, dict[str, Any]], anatomy: Anatomy) -> list[list[str]]:
    """The figures as text, one line per part, after a line of titles."""
    columns: list[tuple[str, str, Callable[[Any], str]]] = [("n", "patients", str), ("Dice", "dice", _dice)]
    columns += [(name, f"dice_{name}", _dice) for name in anatomy.names] + [("lowest", "lowest", _dice)]
    phase = "_ED" if any("_ED" in column for one in parts.values() for column in one) else ""
    columns += [(f"{name} ml", f"volume_percent_{name}{phase}", lambda v: f"{v:+.0f}%") for name in anatomy.names]
    columns += [(f"{c.structure} EF", f"ef_{c.structure}_error", lambda v: f"{v:.1f}") for c in cavities(anatomy)]
    columns += [(f"{name} HD95", f"hd95_{name}", lambda v: f"{v:.1f}") for name in anatomy.names]
    known = [one for one in columns if any(part.get(one[1]) is not None for part in parts.values())]
    lines = [["", *(title for title, _, _ in known)]]
    for part, figures in parts.items():
        values = [(figures.get(name), show) for _, name, show in known]
        lines.append([part, *("" if value is None else show(value) for value, show in values)])
    return lines


def text_table(parts: dict[str, dict[str, Any]], anatomy: Anatomy) -> str:
    """The figures for a terminal."""
    lines = table(parts, anatomy)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]).rstrip()
        for line in lines
    )


def _dice(value: float) -> str:
    return f"{value:.3f}".lstrip("0")
