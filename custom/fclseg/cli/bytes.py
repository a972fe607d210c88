"""``fclseg bytes``: the paper's communication table, computed from the exchange plan and the real networks."""

import argparse

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands, positive
from fclseg.errors import FCLSegError
from fclseg.presets import PRESETS, get_preset


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "bytes",
        help="show what each method sends per client and round",
        description="The paper's communication table: payload per client and round, averaged over the run. Computed "
        "from the exchange plan and the actual size of every component.",
    )
    parser.add_argument("--preset", choices=list(PRESETS), default="paper", help="size of the networks (default paper)")
    parser.add_argument("--sites", type=int, default=10, help="number of participating sites (default 10)")
    parser.add_argument("--rounds", type=int, help="rounds to average over (default: the preset's)")
    parser.add_argument(
        "--codec", help="codec for the networks of all jobs, instead of each job's own (docs/communication.md)"
    )
    parser.add_argument(
        "--prototypes",
        type=int,
        metavar="P",
        help="sites share P mean features per partition instead of the features of single slices (docs/privacy.md)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    preset = get_preset(arguments.preset)
    rounds = preset.pretraining.rounds if arguments.rounds is None else arguments.rounds
    if arguments.sites < 1 or rounds < 1:
        raise FCLSegError("--sites and --rounds must be at least 1, or there is nothing to count")
    if arguments.prototypes is not None:
        positive(arguments.prototypes, "--prototypes")
    from fclseg.federation.payload import communication_table  # imports torch, which --help does not need

    table = communication_table(
        preset, sites=arguments.sites, rounds=rounds, codec=arguments.codec, prototypes=arguments.prototypes
    )
    print(f"Payload per client and round in MB (10^6 bytes): {preset.name}, {arguments.sites} sites, {rounds} rounds.")
    print(f"{'':22}{'payload':>9}{'FCL = 1':>9}   {'not counted':>11}   up | down")
    for title, row in table.items():
        print(
            f"{title:22}{row['payload_mb']:9.2f}{row['ratio']:9.3f}   {row['uncounted_mb']:11.3f}   "
            f"{_components(row['up_mb'])} | {_components(row['down_mb'])}"
        )
    print("Not counted, as in the paper: the upload of a site's own features, partition ids, BatchNorm counters.")
    return Answer(table)


def _components(sizes: dict[str, float]) -> str:
    return ", ".join(f"{name} {size:.3g}" for name, size in sizes.items()) or "-"
