"""``fclseg runs``: all runs below a folder, one line each."""

import argparse
from pathlib import Path

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands
from fclseg.errors import FCLSegError
from fclseg.text import printable


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "runs",
        help="list all runs: state, job, rounds, sites, bytes, date, version, result and command",
        description="List all runs below a folder, including those of studies, newest first. With --kit, list the runs "
        "that were submitted with a lead's kit, as the server knows them.",
        epilog="example:\n  fclseg runs\n  fclseg runs demo_output\n  fclseg runs --kit lead@coordinator.org",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs"), help="folder to search (default runs)")
    parser.add_argument("--kit", type=Path, metavar="DIR", help="for the lead: ask the server, with this startup kit")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    from fclseg.flare.runs.lead import describe_submitted
    from fclseg.flare.runs.overview import describe_facts, facts, find_runs

    if arguments.kit is not None:
        lines = list(describe_submitted(arguments.kit))
        for line in lines or [f"no run was submitted with {arguments.kit}"]:
            print(printable(line))
        return Answer({"submitted": lines})
    if not arguments.folder.is_dir():
        raise FCLSegError(f"there is no folder {arguments.folder}: give the folder that contains the runs")
    known = [facts(found) for found in find_runs(arguments.folder)]
    for line in map(describe_facts, known) if known else [f"there is no run below {arguments.folder}"]:
        print(printable(line))
    return Answer({"runs": known})
