"""``fclseg submit``: for the lead. Makes a job for real sites and submits it to the server."""

import argparse
import os
from pathlib import Path

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands, add_run_options, preset_change, sum_settings
from fclseg.environment import COMMAND


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "submit",
        help="for the lead: run a job at the connected hospitals",
        description="Make a job for real sites and submit it. The server continues an interrupted run by itself. If it "
        "has given up, the same command continues the run, which is found by its name.",
        epilog="example:\n  fclseg submit fclopt_dp --kit lead@coordinator.org --preset paper --min-sites 8",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", metavar="JOB", help="name of a job, such as fclopt_dp")
    parser.add_argument("--kit", type=Path, required=True, metavar="DIR", help="the lead's startup kit")
    add_run_options(parser, "the full path of a file on the server")
    parser.add_argument("--name", help="name of the run (default <job>-<preset>)")
    parser.add_argument(
        "--min-sites",
        type=int,
        default=1,
        metavar="K",
        help="number of sites needed to start and for each round (default 1)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import submit

    submitted = submit(
        arguments.job,
        arguments.kit,
        preset=arguments.preset,
        changes=dict(map(preset_change, arguments.set)),
        min_sites=arguments.min_sites,
        command=os.environ[COMMAND],
        seed=arguments.seed,
        network=arguments.network,
        rounds=arguments.rounds,
        run=arguments.name,
        codec=arguments.codec,
        tracking=arguments.tracking,
        **sum_settings(arguments.sums_only),
    )
    print(f"run {submitted.run} was submitted as job {submitted.job}")
    print(f"its state: fclseg runs --kit {arguments.kit}")
    return Answer(submitted)
