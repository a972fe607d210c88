"""``fclseg pretrain``: run a federated job on this machine."""

import argparse
from pathlib import Path

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands, add_run_options, preset_change, sum_settings


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "pretrain",
        help="pre-train an encoder across several sites in NVFlare's simulator",
        description="Run a job in NVFlare's simulator with one process per site, or with --in-process in this process, "
        "with the same result. Run the same command again to continue an interrupted run.",
        epilog="examples:\n  fclseg pretrain --job fclopt_dp --data data/acdc --sites 4 --preset small --rounds 30\n"
        "  fclseg pretrain --job fclopt_dp --data hospitals --sites-by centre       # sites are real hospitals",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--job", required=True, metavar="NAME", help="name of a job, such as fclopt_dp, or a job folder"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of images (default: a generated phantom)")
    parser.add_argument(
        "--splits", type=Path, metavar="FILE", help="which patient is at which site, made by fclseg data split"
    )
    parser.add_argument("--sites", type=int, metavar="K", help="number of sites (default 2, or as many as in --splits)")
    parser.add_argument(
        "--sites-by",
        metavar="WHAT",
        help="sites are hospitals: an entry of Info.cfg such as centre, or a table (CSV) with the columns patient,site",
    )
    add_run_options(parser, "for example the model.safetensors of a mean_teacher run")
    parser.add_argument(
        "--fraction", type=float, metavar="C", help="fraction of the sites that train per round (default: all)"
    )
    parser.add_argument("--fold", type=int, metavar="F", help="leave out the held-out patients of this fold")
    parser.add_argument("--name", help="name of the run folder (default <job>-<preset>)")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of all runs (default runs)"
    )
    parser.add_argument("--in-process", action="store_true", help="all sites in this process, without NVFlare")
    parser.add_argument("--fresh", action="store_true", help="delete an earlier run of this name and start over")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import pretrain
    from fclseg.engine.next_step import next_steps
    from fclseg.engine.run_folder import RunFolder

    trained = pretrain(
        arguments.job,
        arguments.data,
        name=arguments.name,
        runs=arguments.runs,
        sites=arguments.sites,
        splits=arguments.splits,
        sites_by=arguments.sites_by,
        preset=arguments.preset,
        changes=dict(map(preset_change, arguments.set)),
        seed=arguments.seed,
        network=arguments.network,
        nvflare=not arguments.in_process,
        fresh=arguments.fresh,
        rounds=arguments.rounds,
        fraction=arguments.fraction,
        fold=arguments.fold,
        codec=arguments.codec,
        tracking=arguments.tracking,
        **sum_settings(arguments.sums_only),
    )
    print(*next_steps(RunFolder(trained.folder)), sep="\n")
    return Answer(trained)
