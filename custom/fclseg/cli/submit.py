"""``fclseg submit``: for the lead. Makes a job for real sites and submits it to the server."""

import argparse
import os
import tempfile
from pathlib import Path

from fclseg.cli.options import add_run_options, positive, preset_change
from fclseg.environment import COMMAND
from fclseg.errors import FCLSegError


def register(subparsers) -> None:
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


def run(arguments: argparse.Namespace) -> int:
    from fclseg.federation.exchange import get_row
    from fclseg.flare.jobs import completed, write_job
    from fclseg.flare.kits.project import submit_job
    from fclseg.flare.runs.lead import add_command, remember_job
    from fclseg.flare.settings import RunSettings
    from fclseg.presets import full_name

    if not (arguments.kit / "startup" / "fed_admin.json").is_file():
        raise FCLSegError(
            f"{arguments.kit} is not the startup kit of a lead: use the one that the coordinator made for you"
        )
    row = get_row(arguments.job)
    changes = {full_name(name): value for name, value in map(preset_change, arguments.set)}
    settings = {
        "preset": arguments.preset,
        "seed": arguments.seed,
        "min_sites": positive(arguments.min_sites, "--min-sites"),
        "network": arguments.network,
        "changes": changes,
        "rounds": arguments.rounds,
        "run": arguments.name,
        "codec": arguments.codec,
        "tracking": arguments.tracking,
    }
    settings = completed(row, {name: value for name, value in settings.items() if value not in (None, {})})
    checked = RunSettings.read({"job": row.job, **settings}, {})
    with tempfile.TemporaryDirectory() as folder:
        write_job(Path(folder) / row.job, row, settings, simulator=False)
        add_command(Path(folder) / row.job, os.environ[COMMAND])
        job_id = submit_job(Path(folder) / row.job, arguments.kit.absolute())
    remember_job(arguments.kit, checked.run, job_id)
    print(f"run {checked.run} was submitted as job {job_id}")
    print(f"its state: fclseg runs --kit {arguments.kit}")
    return 0
