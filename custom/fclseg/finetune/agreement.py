"""Agreement of measurements with the true ones: bias and limits of agreement (Bland and Altman, Lancet 1986)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def bland_altman(pairs: Sequence[tuple[float, float]], unit: str) -> dict[str, Any]:
    """Mean difference of (found, true) pairs, and the range that contains 95 % of the differences."""
    found, true = np.array(pairs, dtype=float).T
    difference = found - true
    bias = float(difference.mean())
    spread = 1.96 * float(difference.std(ddof=1)) if len(pairs) > 1 else 0.0
    return {
        "unit": unit,
        "count": len(pairs),
        "bias": bias,
        "low": bias - spread,
        "high": bias + spread,
        "mean_absolute_error": float(np.abs(difference).mean()),
        "pairs": [[round(float(a), 2), round(float(b), 2)] for a, b in pairs],
    }


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
            axis.axhline(value, color="#444444", linestyle=style, linewidth=1)
        axis.set_title(
            f"{name}: {one['bias']:+.1f} ({one['low']:+.1f} to {one['high']:+.1f}) {one['unit']}", fontsize=9
        )
        axis.set_xlabel(f"mean of found and true, {one['unit']}", fontsize=8)
        axis.set_ylabel(f"found - true, {one['unit']}", fontsize=8)
    FigureCanvasAgg(figure).print_png(path)
