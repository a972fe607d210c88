"""``fclseg study``: runs the paper's tables on any data with one command."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands, named_value, positive, preset_change
from fclseg.environment import COMMAND
from fclseg.errors import FCLSegError
from fclseg.presets import PRESETS

if TYPE_CHECKING:
    from fclseg.study.job_options import FilterSpec

TABLES = ("local", "federated", "centralised", "transfer", "ablation", "communication", "components", "learning-rate")

EPILOG = """\
tables
  local          each site fine-tunes alone with N labelled patients
  federated      all sites fine-tune one network together, in one process (the same bits as with NVFlare)
  centralised    N labelled patients from all sites together
  transfer       pre-trained on one data set, fine-tuned on another (--transfer-data)
  ablation       FCL without and with feature exchange, negative sampling, structural matching
  communication  bytes per round, next to the Dice of the local table as far as it has been run
  components     what each method sends and receives
  learning-rate  the random baseline at several fine-tuning learning rates

A study consists of cells. Each cell is one pre-training or one fine-tuning. Finished cells are stored in the folder
--out under a key of everything that determines the result. You can therefore stop a study at any time and continue it
with the same command, tables share their pre-trainings, and a second call takes seconds.

examples
  fclseg study local --preset demo --methods random,fclopt_dp --labels 1,2 --folds 1
      a first look on phantom patients, in a few minutes
  fclseg study local --data ACDC --sites 4 --preset small --methods random,fedbyol,fclopt --labels 1,2,4 \\
         --mode full,frozen --seeds 3
      your own images: does pre-training help with few labels? The scores are noisy: it takes about 50 pairs to see
      a gain of 0.04 Dice
  fclseg study local --data ACDC --methods random,fclopt --also-plain \\
         --filter fclseg.flare.filters.ClipAndNoise:clip=1,sigma=0.001
      what noise on the sites' updates costs
  fclseg data join hospitals acdc mnms
  fclseg study federated --data hospitals --sites-by centre --hold-out mnms-3 --methods random,fclopt_dp --labels 1,2
      sites are real hospitals, and one of them never takes part: does it gain as well?
  fclseg study components
      no data and no training needed
"""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "study",
        help="run a table of the paper on your data or on phantoms",
        description="Pre-train, fine-tune, compare: one table of the paper with its statistics and a report.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", choices=TABLES, metavar="TABLE", help="which table; see below")
    add_scope(parser.add_argument_group("what is compared"))
    add_data(parser.add_argument_group("on which images"))
    add_job_options(parser.add_argument_group("what the sites send during pre-training"))
    running = parser.add_argument_group("how it runs")
    running.add_argument(
        "--preset",
        default="small",
        choices=list(PRESETS),
        help="size of images, networks and training: demo, small, standard or paper (default: small)",
    )
    running.add_argument("--rounds", type=int, help="pre-training rounds (default: the preset's)")
    running.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change one setting of the preset; repeatable"
    )
    running.add_argument("--jobs", type=int, default=2, help="fine-tunings in parallel (default: 2)")
    running.add_argument("--out", type=Path, default=Path("studies"), help="folder of all studies (default: studies)")
    parser.set_defaults(run=run)


def add_scope(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--methods", help="rows, such as random,shipped,fclopt_dp; an unknown name lists them all (default: all)"
    )
    group.add_argument(
        "--labels",
        default="1,2,4,8",
        help="numbers of labelled patients (default: 1,2,4,8); 0 scores networks that segment without labels "
        "(phantom, mean_teacher)",
    )
    group.add_argument("--folds", type=int, help="how many folds of the split to run (default: all, usually five)")
    group.add_argument(
        "--seeds", type=int, default=1, help="fine-tunings per cell, each with different labelled patients (default: 1)"
    )
    group.add_argument(
        "--first-seed",
        type=int,
        default=0,
        metavar="S",
        help="of phantoms, pre-trainings and fine-tunings (default: 0)",
    )
    group.add_argument("--pretrain-seeds", type=int, default=1, help="pre-trainings per method (default: 1)")
    group.add_argument(
        "--unseen",
        action="store_true",
        help="pre-train once per fold, without the fold's held-out patients (default: once, on all patients)",
    )
    group.add_argument(
        "--also-pooled",
        action="store_true",
        help="also pre-train each method with the patients of all sites in one place, with as many steps as one site "
        "takes in the federation: how much does it cost that data stay at their sites?",
    )
    group.add_argument(
        "--mode",
        default="full",
        help="full (fine-tune the whole network, what a user gets), frozen (frozen-encoder evaluation, for feature "
        "quality) or full,frozen (default: full)",
    )
    group.add_argument("--baseline", help="row that the others are compared with (default: random, or the first row)")


def add_job_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--job-set", action="append", default=[], metavar="NAME=VALUE",
        help="set one setting of the pre-training jobs, such as fraction=0.5 (half of the sites per round) or "
        "network=shipped (start from the shipped weights); repeatable",
    )  # fmt: skip
    group.add_argument(
        "--filter", action="append", default=[], metavar="CLASS:NAME=VALUE,...",
        help="apply a filter of this package to what the sites send during pre-training; repeatable, applied in order",
    )  # fmt: skip
    group.add_argument(
        "--also-plain",
        action="store_true",
        help="also run each method without these settings and filters, for comparison",
    )


def add_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--data", type=Path, help="folder of images (default: phantom patients, generated)")
    group.add_argument("--sites", type=int, default=4, help="number of sites to split the patients across (default: 4)")
    group.add_argument(
        "--sites-by",
        metavar="WHAT",
        help="sites are hospitals: an entry of Info.cfg such as centre, or a table (CSV) with the columns patient,site",
    )
    group.add_argument(
        "--hold-out",
        metavar="SITE",
        help="hold this site out of everything: its patients train nothing and are scored in every fold",
    )
    group.add_argument("--splits", type=Path, help="a split made by 'fclseg data split' instead of --sites")
    group.add_argument("--transfer-data", type=Path, help="second folder of images, for the transfer table")
    group.add_argument("--patients", type=int, default=10, help="phantom patients per site (default: 10)")


def run(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import study
    from fclseg.study.run import show

    studied = study(
        arguments.table,
        arguments.out,
        preset=arguments.preset,
        changes=preset_changes(arguments),
        methods=arguments.methods,
        job_settings=dict(named_value(text, "--job-set", "fraction=0.5") for text in arguments.job_set),
        filters=tuple(filter_spec(text) for text in arguments.filter),
        also_plain=arguments.also_plain,
        also_pooled=arguments.also_pooled,
        labels=numbers(arguments.labels, "--labels"),
        folds=None if arguments.folds is None else positive(arguments.folds, "--folds"),
        seeds=positive(arguments.seeds, "--seeds"),
        first_seed=arguments.first_seed,
        pretrain_seeds=positive(arguments.pretrain_seeds, "--pretrain-seeds"),
        unseen=arguments.unseen,
        modes=modes(arguments.mode),
        baseline=arguments.baseline,
        data=arguments.data,
        sites=positive(arguments.sites, "--sites"),
        sites_by=arguments.sites_by,
        hold_out=arguments.hold_out,
        splits=arguments.splits,
        transfer_data=arguments.transfer_data,
        patients=positive(arguments.patients, "--patients"),
        workers=positive(arguments.jobs, "--jobs"),
        command=os.environ[COMMAND],
    )
    show(studied)
    paths = {"folder": studied.folder, "report": studied.report}
    return Answer({**paths, "study": studied.study}, 1 if studied.failures else 0)


def preset_changes(arguments: argparse.Namespace) -> dict[str, object]:
    changes: dict[str, object] = {} if arguments.rounds is None else {"rounds": positive(arguments.rounds, "--rounds")}
    return changes | dict(preset_change(text) for text in arguments.set)


def filter_spec(text: str) -> "FilterSpec":
    """``CLASS:NAME=VALUE,NAME=VALUE``"""
    from fclseg.study.job_options import FilterSpec

    path, _, arguments = text.partition(":")
    example = "fclseg.flare.filters.ClipAndNoise:clip=1,sigma=0.1"
    parts = [part for part in arguments.split(",") if part]
    return FilterSpec(path, tuple(named_value(part, "--filter", example) for part in parts))


def numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        found = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise FCLSegError(
            f"{option} must be whole numbers separated by commas, for example 1,2,4, not '{text}'"
        ) from None
    if found[0] < 0:
        raise FCLSegError(f"{option} must not be negative, but is {found[0]}")
    return found


def modes(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if unknown := [name for name in found if name not in ("full", "frozen")]:
        raise FCLSegError(f"there is no mode '{unknown[0]}': choose full, frozen or full,frozen")
    return found
