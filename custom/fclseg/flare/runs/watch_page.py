"""A small read-only page about one run, for a browser on the same machine: state, sites, curves, bytes and faults."""

import html
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fclseg.flare.runs.overview import RunOverview, age

REFRESH_SECONDS = 5
WIDTH, HEIGHT, MARGIN = 640, 200, 8
LOCAL = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 46rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .25rem .6rem; }
tr + tr { border-top: 1px solid #ddd; } .fault { color: #b00020; } svg { width: 100%; height: auto; }
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><meta http-equiv="refresh" content="{refresh}">
<meta name="viewport" content="width=device-width"><style>{style}</style></head>
<body><h1>{title}</h1><p id="state">{state}</p>
<h2>Sites</h2>
<table id="sites"><tr><th>site</th><th>round</th><th>loss</th><th>seconds</th><th>MB</th><th>state</th></tr>
{sites}</table>
<h2>Loss</h2>{loss}
<h2>Megabytes per round</h2>{traffic}
<h2>Faults</h2><ul id="faults">{faults}</ul></body></html>
"""


def render(run: RunOverview, now: float | None = None) -> str:
    """The whole page. Every name in it is escaped, because sites and runs choose their own names."""
    rounds = f"round {len(run.records)} of {run.rounds}" if run.rounds else f"round {len(run.records)}"
    parts = [run.state, f"{run.job}, preset {run.preset}", rounds, f"{run.bytes / 1e6:.1f} MB"]
    parts += [f"last round {age((now or time.time()) - run.seen)} ago", f"version {run.version or 'unknown'}"]
    parts += [str(run.result or run.reason)] if run.result or run.reason else []
    rows = [
        (s.name, s.round_number, _number(s.loss, 4), _number(s.seconds, 1), _number(s.bytes / 1e6, 1), s.status)
        for s in run.sites
    ]
    return PAGE.format(
        title=html.escape(f"Run {run.name}"),
        refresh=REFRESH_SECONDS,
        style=STYLE,
        state=html.escape("; ".join(parts)),
        sites="\n".join(_row(row, fault=row[-1] != "ok") for row in rows),
        loss=curve([record["loss"] for record in run.records]),
        traffic=curve([_megabytes(record) for record in run.records]),
        faults="".join(f'<li class="fault">{html.escape(fault)}</li>' for fault in run.faults) or "<li>none</li>",
    )


def _row(cells: Sequence[object], fault: bool) -> str:
    kind = ' class="fault"' if fault else ""
    return f"<tr{kind}>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _megabytes(record: dict[str, Any]) -> float:
    return sum(part.get("wire", 0) for site in record.get("bytes", {}).values() for part in site.values()) / 1e6


def curve(values: Sequence[float]) -> str:
    """A line over the rounds as SVG, with its minimum and maximum."""
    if not values:
        return "<p>no round has finished yet</p>"
    low, high = min(values), max(values)
    across = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    down = (HEIGHT - 2 * MARGIN) / ((high - low) or 1)
    points = " ".join(
        f"{MARGIN + across * index:.1f},{MARGIN + down * (high - value):.1f}" for index, value in enumerate(values)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{len(values)} rounds, {low:.4g} to {high:.4g}</title>'
        f'<polyline fill="none" stroke="#1f6feb" stroke-width="2" points="{points}"/>'
        f'<text x="{MARGIN}" y="{HEIGHT - 2}" font-size="12">{low:.4g} to {high:.4g}, now {values[-1]:.4g}</text></svg>'
    )


def page_server(read: Callable[[], RunOverview], port: int) -> ThreadingHTTPServer:
    """A server that is reachable from this machine only and answers GET with the page. ``port`` 0 takes a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rsplit(":", 1)[0]
            if (
                host not in LOCAL
            ):  # a script of another web site in the user's browser must not read the page under its own host name
                self.send_error(403)
                return
            if self.path != "/":
                self.send_error(404)
                return
            body = render(read()).encode()
            self.send_response(200)
            for name, value in {"Content-Type": "text/html; charset=utf-8", **HEADERS}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Log nothing: the terminal shows the run."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)
