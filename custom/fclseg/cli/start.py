"""``fclseg start``: a start page instead of a terminal."""

import argparse
from pathlib import Path

from fclseg.cli.options import Commands

DESCRIPTION = """Open a start page in the browser of this machine: choose a folder, segment or label it, see results.

--icon puts FCLSeg into the menu of applications and on the desktop, so that nobody needs a terminal afterwards. The
program ends with the button on its page, or five minutes after its window was closed. Research only, not for clinical
use."""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "start",
        help="a start page in the browser: segment and label without a terminal",
        description=DESCRIPTION,
        epilog="examples:\n  fclseg start\n  fclseg start --icon      # once; then double-click FCLSeg",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--icon", action="store_true", help="write the icon, and do nothing else")
    parser.add_argument("--home", type=Path, metavar="DIR", help="folder that is shown first (default: your own)")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the link instead of opening it")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from fclseg.start.icon import write_icon
    from fclseg.start.serve import start

    if arguments.icon:
        print("".join(f"written: {path}\n" for path in write_icon(Path.home())), end="")
        return 0
    start(arguments.home or Path.home(), arguments.port, not arguments.no_browser)
    return 0
