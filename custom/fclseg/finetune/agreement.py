"""Agreement of measurements with the true ones: bias and limits of agreement (Bland and Altman, Lancet 1986)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def bland_altman(pairs: Sequence[tuple[float, float]], unit: str) -> dict[str, Any]:
    """Mean difference of (found, true) pairs, and the range that contains 95 % of the differences.

    One pair has no range. Differences of percentages are points.
    """
    found, true = np.array(pairs, dtype=float).T
    difference = found - true
    bias = float(difference.mean())
    spread = 1.96 * float(difference.std(ddof=1)) if len(pairs) > 1 else None
    return {
        "unit": unit,
        "count": len(pairs),
        "bias": bias,
        "low": None if spread is None else bias - spread,
        "high": None if spread is None else bias + spread,
        "mean_absolute_error": float(np.abs(difference).mean()),
        "pairs": [[round(float(a), 2), round(float(b), 2)] for a, b in pairs],
    }


def points(unit: str) -> str:
    """The unit of a difference."""
    return "points" if unit == "%" else unit


def in_words(one: Mapping[str, Any]) -> str:
    """ "bias +1.5 points, limits -4.0 to +7.0" """
    bias = f"bias {one['bias']:+.1f} {points(one['unit'])}"
    if one["low"] is None:
        return f"{bias} in one patient: limits need two or more"
    return f"{bias}, limits {one['low']:+.1f} to {one['high']:+.1f}"


def write_agreement_plot(path: Path | IO[bytes], agreement: Mapping[str, Mapping[str, Any]]) -> None:
    """One panel per quantity, with the difference over the mean of both."""
    columns = min(3, len(agreement))
    rows = -(-len(agreement) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), dpi=110, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes[len(agreement) :]:
        axis.axis("off")
    for axis, (name, one) in zip(axes, agreement.items(), strict=False):
        found, true = np.array(one["pairs"]).T
        axis.scatter((found + true) / 2, found - true, s=14, color="#1f6feb")
        for value, style in ((one["bias"], "-"), (one["low"], "--"), (one["high"], "--")):
            if value is not None:
                axis.axhline(value, color="#444444", linestyle=style, linewidth=1)
        axis.set_title(f"{name}: {in_words(one)}", fontsize=9)
        axis.set_xlabel(f"mean of found and true, {one['unit']}", fontsize=8)
        axis.set_ylabel(f"found - true, {points(one['unit'])}", fontsize=8)
    FigureCanvasAgg(figure).print_png(path)
