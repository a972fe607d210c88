"""A small read-only page about one run, for a browser on the same machine: state, sites, curves, bytes and faults.
Beside it are ``/health`` (503 if the run has failed or stands still) and ``/metrics`` for Prometheus.
"""

import html
import json
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fclseg.charts import Series, line_chart
from fclseg.errors import FCLSegError
from fclseg.flare.runs.overview import FAILED, STOPPED, RunOverview, age
from fclseg.text import one_line

REFRESH_SECONDS = 5
LOCAL = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
STYLE = """
:root { color-scheme: light dark; --line: #8884; --curve: #1f6feb; --fault: light-dark(#b00020, #ff7b8a); }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 46rem; padding: 0 1rem; }
h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; }
dt { opacity: .7; } dd { margin: 0; overflow-wrap: anywhere; } h1 span { font-size: 1rem; font-weight: normal; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .25rem .6rem .25rem 0; }
tr + tr { border-top: 1px solid var(--line); } .fault { color: var(--fault); }
svg { width: 100%; height: auto; overflow: visible; }
figure { margin: 1.6rem 0 0; } figcaption { font-size: 1.1rem; font-weight: bold; } svg.key { width: 22px; }
svg text { font-size: 12px; fill: currentColor; opacity: .7; } .grid, .axis { stroke: var(--line); }
.c0 { --c: var(--curve); } .c1 { --c: var(--fault); } .line { fill: none; stroke: var(--c); stroke-width: 2; }
.dot { fill: var(--c); } .legend { list-style: none; padding: 0; } td:first-child { white-space: nowrap; }
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><meta http-equiv="refresh" content="{refresh}">
<meta name="viewport" content="width=device-width"><style>{style}</style></head>
<body><h1>{title} <span{alarm}>{state}</span></h1><dl id="state">{facts}</dl>
<h2>Sites</h2>
<table id="sites"><tr><th>site</th><th>round</th><th>loss</th><th>seconds</th><th>MB</th><th>state</th></tr>
{sites}</table>
<h2>Faults</h2><ul id="faults">{faults}</ul>
{loss}
{traffic}</body></html>
"""
FAULT = ' class="fault"'


def render(run: RunOverview, now: float | None = None) -> str:
    """The whole page. Every name in it is escaped, because sites and runs choose their own names."""
    rounds = f"{len(run.records)} of {run.rounds}" if run.rounds else f"{len(run.records)}"
    facts = {"job": f"{run.job}, preset {run.preset}", "rounds": rounds, "sent": f"{run.bytes / 1e6:.1f} MB"}
    facts |= {"last round": f"{age((now or time.time()) - run.seen)} ago", "version": run.version or "unknown"}
    facts |= {"result": str(run.result)} if run.result else {}
    facts |= {"reason": run.reason} if run.reason and not run.result else {}
    rows = [
        (
            *(s.name, s.round_number, _number(s.loss, 4), _number(s.seconds, 1), _number(s.bytes / 1e6, 1)),
            s.status.removeprefix(f"{s.name} "),
        )
        for s in run.sites
    ]
    late = [any(one["status"] != "ok" for one in record["sites"].values()) for record in run.records]
    return PAGE.format(
        title=html.escape(f"Run {run.name}"),
        refresh=REFRESH_SECONDS,
        style=STYLE,
        alarm=FAULT if run.state in (FAILED, STOPPED) else "",
        state=run.state,
        facts="".join(f"<dt>{name}</dt><dd>{html.escape(fact)}</dd>" for name, fact in facts.items()),
        sites="\n".join(_row(row, fault=row[-1] != "ok") for row in rows),
        loss=curve("Loss", [record["loss"] for record in run.records], late),
        traffic=curve("Megabytes per round", [_megabytes(record) for record in run.records], late),
        faults="".join(f"<li{FAULT}>{html.escape(fault)}</li>" for fault in run.faults) or "<li>none</li>",
    )


def _row(cells: Sequence[object], fault: bool) -> str:
    return f"<tr{FAULT * fault}>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _megabytes(record: dict[str, Any]) -> float:
    return sum(part.get("wire", 0) for site in record.get("bytes", {}).values() for part in site.values()) / 1e6


def curve(title: str, values: Sequence[float], faults: Sequence[bool]) -> str:
    """A line over the rounds, with a dot at each round in which a site failed."""
    if not values:
        return "<p>no round has finished yet</p>"
    rounds = range(1, len(values) + 1)
    failed = [value if fault else None for value, fault in zip(values, faults, strict=True)]
    lines = [Series("all sites", rounds, values), Series("a site failed", rounds, failed, line=False)]
    return line_chart(f"{title}, now {values[-1]:.4g}", lines, "round", title)


def metrics(run: RunOverview, now: float | None = None) -> str:
    """The run's state in the text format of Prometheus."""
    last: dict[str, Any] = run.records[-1] if run.records else {"loss": float("nan"), "sites": {}}
    values = {
        "running": int(run.state not in (FAILED, STOPPED)),
        "rounds_done": len(run.records),
        "rounds": run.rounds or 0,
        "loss": last["loss"],
        "bytes": run.bytes,
        "seconds_since_round": (now or time.time()) - run.seen,
    }
    lines = [f"fclseg_run_{name}{{run={label(run.name)}}} {value}" for name, value in values.items()]
    for site, report in sorted(last["sites"].items()):
        labels = f"run={label(run.name)},site={label(site)}"
        lines.append(f"fclseg_site_ok{{{labels}}} {int(report['status'] == 'ok')}")
    return "\n".join(lines) + "\n"


def label(text: str) -> str:
    return json.dumps(one_line(text), ensure_ascii=False)


Pages = dict[str, tuple[int, str, str]]
"""Path -> (status, kind, text)."""


def pages(run: RunOverview) -> Pages:
    return {
        "/": (200, "text/html", render(run)),
        "/health": (503 if run.state in (FAILED, STOPPED) else 200, "text/plain", f"{run.state}\n"),
        "/metrics": (200, "text/plain", metrics(run)),
    }


def page_server(read: Callable[[], Pages], port: int) -> ThreadingHTTPServer:
    """A server that is reachable from this machine only and answers GET with a page. ``port`` 0 takes a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rsplit(":", 1)[0]
            # A script of another web site in the user's browser must not read the page under its own host name.
            if host not in LOCAL:
                self.send_error(403)
                return
            found = read().get(self.path)
            if found is None:
                self.send_error(404)
                return
            status, kind, body = found[0], found[1], found[2].encode()
            self.send_response(status)
            for name, value in {"Content-Type": f"{kind}; charset=utf-8", **HEADERS}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Log nothing: the terminal shows the run."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def open_pages(read: Callable[[], Pages], port: int) -> ThreadingHTTPServer:
    """``page_server``, and its address on the screen."""
    try:
        server = page_server(read, port)
    except (OSError, OverflowError):
        raise FCLSegError(f"port {port} is taken or not allowed: choose another one with --port") from None
    print(f"http://localhost:{server.server_address[1]}", flush=True)
    return server
