"""``fclseg watch``: follow a run in the terminal, and in a browser on the same machine."""

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands
from fclseg.errors import FCLSegError
from fclseg.text import printable

if TYPE_CHECKING:
    from fclseg.flare.runs.overview import RunOverview

SECONDS = 2.0


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "watch",
        help="follow a run: one line per site, and a page for the browser",
        description="Follow a run until it ends: one line per site, and with --port a page for a browser on this "
        "machine. It only reads, so it never disturbs a run.",
        epilog="example:\n  fclseg watch fclopt_dp-small --port 8765      # then open http://localhost:8765",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="RUN", help="name of the run, or its folder")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of all runs")
    parser.add_argument("--port", type=int, metavar="P", help="also serve a page at http://localhost:P")
    parser.add_argument("--once", action="store_true", help="print the state once and exit")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    from fclseg.engine.run_files import CONFIG
    from fclseg.flare.runs.overview import RUNNING, facts, read_run

    folder = next(
        (path for path in (arguments.runs / arguments.name, Path(arguments.name)) if (path / CONFIG).exists()), None
    )
    if folder is None:
        raise FCLSegError(f"there is no run '{arguments.name}' in {arguments.runs}: fclseg runs lists them")
    if arguments.port is not None:
        _serve(folder, arguments.port)
    while True:
        found = read_run(folder)
        _show(found)
        if arguments.once or (found.state != RUNNING and arguments.port is None):
            return Answer(facts(found) | {"sites": found.sites})
        time.sleep(SECONDS)


def _serve(folder: Path, port: int) -> None:
    from fclseg.flare.runs.overview import read_run
    from fclseg.flare.runs.watch_page import open_pages, pages

    server = open_pages(lambda: pages(read_run(folder)), port)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _show(run: "RunOverview") -> None:
    from fclseg.flare.runs.overview import describe_run

    if sys.stdout.isatty():
        print("\033[2J\033[H", end="")
    print(printable(describe_run(run)))
    for site in run.sites:
        loss = "" if site.loss is None else f"  loss {site.loss:.4f}  {site.seconds:.1f} s"
        print(printable(f"  {site.name:<16} round {site.round_number}{loss}  {site.bytes / 1e6:.1f} MB  {site.status}"))
    sys.stdout.flush()
