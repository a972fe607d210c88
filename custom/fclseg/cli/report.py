"""``fclseg report``: one self-contained page about a run or a study."""

import argparse
import os
from pathlib import Path

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands
from fclseg.environment import COMMAND

EPILOG = """\
The page is self-contained and works offline: send it by mail, print it, or open it on a phone.

  fclseg report runs/fclopt_dp-small             a pre-training run: loss, distances d and d~, bytes per component
  fclseg report studies/local                    one table with its statistics, curves and pictures
  fclseg report studies --out everything.html    all tables of a study folder on one page
"""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "report",
        help="write one self-contained HTML page about a run or a study",
        description="Write one HTML page about a pre-training run, a study, or all studies of a folder.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="RUN_OR_STUDY", help="folder of a run or of a study")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="HTML file to write (default: report.html in the folder)"
    )
    parser.add_argument(
        "--patient-names", action="store_true", help="show patient names under the pictures (default: no)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import report

    command = os.environ[COMMAND]
    page = report(arguments.folder, arguments.out, patient_names=arguments.patient_names, command=command)
    print(f"report: {page}")
    return Answer({"report": page})
