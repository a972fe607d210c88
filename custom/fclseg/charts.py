"""Charts as inline SVG. Colours and fonts come from the page's style sheet, for light mode, dark mode and print.

The view box is narrow on purpose: on a phone the chart is shown at about its native size, and text stays readable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, isfinite, log10
from textwrap import wrap

from markupsafe import Markup, escape

WIDTH, HEIGHT = 440, 270
LEFT, RIGHT, TOP, BOTTOM = 60, 24, 14, 40
NAME_LETTERS, LINE_HEIGHT = 20, 15
"""How many characters of a name fit into one line next to a forest plot, even on a phone."""
COLOURS = 14
"""How many series colours the style sheet defines (classes c0, c1, ...)."""


@dataclass(frozen=True)
class Series:
    """One line of a chart. A value that is None or not finite has no point."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    spread: Sequence[float | None] = field(default_factory=tuple)  # error bars, +- around y
    dashed: bool = False
    colour: int | None = None
    line: bool = True  # False: points alone

    def points(self) -> list[tuple[float, float, float]]:
        spread = self.spread or [None] * len(self.y)
        triples = zip(self.x, self.y, spread, strict=True)
        return [(x, y, e or 0.0) for x, y, e in triples if y is not None and isfinite(y)]


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover the range: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        low, high = low - (abs(low) or 1) * 0.5, high + (abs(high) or 1) * 0.5
    raw = (high - low) / count
    power = 10.0 ** floor(log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _text(value: float) -> str:
    return f"{value:,.6g}" if abs(value) < 1e5 else f"{value:.2g}"


def _signed(value: float) -> str:
    return f"{value:+.6g}" if value else "0"


class Axes:
    """The frame of a chart: maps values to the drawing, draws ticks and labels."""

    def __init__(self, x: Sequence[float], y: Sequence[float], x_label: str, y_label: str, categories: bool = False):
        self.x_ticks = sorted(set(x)) if categories else nice_ticks(min(x), max(x))
        self.y_ticks = nice_ticks(min(y), max(y))
        self.positions = {tick: i for i, tick in enumerate(self.x_ticks)} if categories else None
        self.labels = (x_label, y_label)
        if not categories:  # the axis ends with the last round or epoch, not at the next multiple
            self.x_low, self.x_high = min(x), max(x) if max(x) > min(x) else min(x) + 1
            self.x_ticks = [tick for tick in self.x_ticks if self.x_low <= tick <= self.x_high]

    def px(self, value: float) -> float:
        if self.positions is not None:
            share = (self.positions[value] + 0.5) / len(self.positions)
        else:
            share = (value - self.x_low) / (self.x_high - self.x_low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def py(self, value: float) -> float:
        share = (value - self.y_ticks[0]) / (self.y_ticks[-1] - self.y_ticks[0])
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def svg(self) -> str:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        parts = []
        for tick in self.y_ticks:
            y = self.py(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_text(tick)}</text>')
        for tick in self.x_ticks:
            parts.append(f'<text x="{self.px(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{_text(tick)}</text>')
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        x_label, y_label = map(escape, self.labels)
        middle = (TOP + bottom) / 2
        parts.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{x_label}</text>')
        parts.append(f'<text transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">{y_label}</text>')
        return "".join(parts)


def _figure(body: str, title: str, legend: Sequence[tuple[str, int, bool]] = (), height: float = HEIGHT) -> Markup:
    keys = "".join(
        f'<li><svg class="key c{colour % COLOURS}{" dashed" if dashed else ""}" viewBox="0 0 22 8" aria-hidden="true">'
        f'<line class="line" x1="0" x2="22" y1="4" y2="4"/></svg>{escape(name)}</li>'
        for name, colour, dashed in legend
    )
    keys = f'<ul class="legend">{keys}</ul>' if keys else ""
    return Markup(
        f'<figure class="chart"><figcaption>{escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">{body}</svg>{keys}</figure>'
    )


def line_chart(
    title: str, series: Sequence[Series], x_label: str, y_label: str, *, categories: bool = False, zero: bool = False
) -> Markup:
    """Lines with optional error bars. With ``categories`` the x values are equally spaced. Without lines: no figure."""
    drawn = [(line.colour if line.colour is not None else i, line) for i, line in enumerate(series) if line.points()]
    if not drawn:
        return Markup("")
    points = [point for _, line in drawn for point in line.points()]
    heights = [y + sign * e for _, y, e in points for sign in (-1, 1)] + ([0.0] if zero else [])
    axes = Axes([x for x, _, _ in points], heights, x_label, y_label, categories)
    body = [axes.svg()]
    for i, (colour, line) in enumerate(drawn):
        # Side by side, so that error bars of the same label count do not overlap.
        shift = (i - (len(drawn) - 1) / 2) * min(7.0, 60.0 / len(drawn)) if categories else 0.0
        body.append(_line(axes, line, colour, shift, markers=categories or not line.line or len(line.points()) <= 30))
    return _figure("".join(body), title, [(line.name, colour, line.dashed) for colour, line in drawn])


def _line(axes: Axes, line: Series, colour: int, shift: float, markers: bool) -> str:
    spots = [(axes.px(x) + shift, axes.py(y), axes.py(y - e), axes.py(y + e)) for x, y, e in line.points()]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in spots)
    parts = [f'<polyline class="line" points="{path}"/>'] if line.line else []
    for x, y, low, high in spots:
        if low != high:
            parts.append(f'<line class="error" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>')
        if markers:
            parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
    dashed = " dashed" if line.dashed else ""
    return f'<g class="c{colour % COLOURS}{dashed}">{"".join(parts)}</g>'


def stacked_bars(
    title: str, x: Sequence[float], parts: Mapping[str, Sequence[float]], x_label: str, y_label: str
) -> Markup:
    """One bar per x, with its parts stacked in the order of ``parts``."""
    if not x or not parts:
        return Markup("")
    totals = [sum(values[i] for values in parts.values()) for i in range(len(x))]
    axes = Axes([min(x) - 0.5, max(x) + 0.5], [0.0, max(totals) or 1.0], x_label, y_label)
    width = max(0.8, (axes.px(1) - axes.px(0)) * 0.8)
    axes.x_ticks = [tick for tick in axes.x_ticks if tick == int(tick)]
    body, base = [axes.svg()], [0.0] * len(x)
    for colour, values in enumerate(parts.values()):
        for i, value in enumerate(values):
            top, bottom = axes.py(base[i] + value), axes.py(base[i])
            base[i] += value
            if bottom - top > 0.01:
                box = (
                    f'x="{axes.px(x[i]) - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{bottom - top:.1f}"'
                )
                body.append(f'<rect class="bar c{colour % COLOURS}" {box}/>')
    return _figure("".join(body), title, [(name, colour, False) for colour, name in enumerate(parts)])


@dataclass(frozen=True)
class Effect:
    """One row of a forest plot: a difference with its interval."""

    name: str
    value: float
    low: float | None
    high: float | None
    colour: int = 0


def forest(title: str, effects: Sequence[Effect], x_label: str) -> Markup:
    """Differences with confidence intervals around a line at zero."""
    if not effects:
        return Markup("")
    left = 150
    names = [wrap(effect.name, NAME_LETTERS) or [""] for effect in effects]
    step = 5 + LINE_HEIGHT * max(map(len, names))
    height = TOP + step * len(effects) + BOTTOM
    ends = [v for e in effects for v in (e.value, e.low, e.high) if v is not None and isfinite(v)]
    ticks = nice_ticks(min([*ends, 0.0]), max([*ends, 0.0]), 4)

    def px(value: float) -> float:
        return left + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (WIDTH - RIGHT - left)

    bottom = height - BOTTOM
    body = []
    for tick in ticks:
        kind = "axis" if tick == 0 else "grid"
        body.append(f'<line class="{kind}" x1="{px(tick):.1f}" x2="{px(tick):.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
        body.append(f'<text x="{px(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{_signed(tick)}</text>')
    for i, effect in enumerate(effects):
        y = TOP + step * (i + 0.5)
        line = ""
        if effect.low is not None and effect.high is not None:
            line = f'<line class="error" x1="{px(effect.low):.1f}" x2="{px(effect.high):.1f}" y1="{y}" y2="{y}"/>'
        for number, part in enumerate(names[i]):
            offset = (number - (len(names[i]) - 1) / 2) * LINE_HEIGHT + 4
            body.append(f'<text x="{left - 8}" y="{y + offset:.1f}" text-anchor="end">{escape(part)}</text>')
        dot = f'<circle class="dot" cx="{px(effect.value):.1f}" cy="{y}" r="4"/>'
        body.append(f'<g class="c{effect.colour % COLOURS}">{line}{dot}</g>')
    middle = (left + WIDTH - RIGHT) / 2
    body.append(f'<text x="{middle}" y="{height - 6}" text-anchor="middle">{escape(x_label)}</text>')
    return _figure("".join(body), title, height=height)
