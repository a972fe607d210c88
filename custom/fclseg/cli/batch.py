"""``fclseg batch``: a folder of many exams overnight."""

import argparse
from pathlib import Path

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands

DESCRIPTION = """Segment every exam of a folder: each sub-folder, zip archive or image in it is one exam.

Each exam gets a folder in DIR with its own index.html. One line per exam is printed and added to DIR/exams.jsonl;
DIR/exams.csv is the table of all. The same command continues where it was stopped. The exit code is 1 if an exam could
not be segmented. Research only, not for clinical use."""

EXAMPLES = """examples:
  fclseg batch exports/ --out results --workers 2
  fclseg batch exports/ --out results --workers 2 --cine-only --pdf"""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "batch",
        help="segment a folder of many exams, one line per exam",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder with one folder, archive or image per exam")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the results")
    parser.add_argument("--model", type=Path, metavar="FILE", help="fine-tuned model (default: the shipped weights)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="exams in parallel (default 1)")
    parser.add_argument("--all-phases", action="store_true", help="all frames of a cine even if ED and ES are named")
    parser.add_argument("--cine-only", action="store_true", help="refuse DICOM exams without a short-axis cine")
    parser.add_argument("--pdf", action="store_true", help="also write each report as a PDF")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import batch

    rows = batch(
        arguments.folder,
        arguments.out,
        arguments.model,
        all_phases=arguments.all_phases,
        cine_only=arguments.cine_only,
        workers=arguments.workers,
        pdf=arguments.pdf,
    )
    failed = [row for row in rows if row["reason"]]
    print(f"{len(rows) - len(failed)} of {len(rows)} exams segmented: {arguments.out / 'exams.csv'}")
    return Answer({"out": arguments.out, "exams": rows}, 1 if failed else 0)
