"""``fclseg where``: the folders of the bundles and jobs that are part of the package."""

import argparse
import sys

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands
from fclseg.errors import FCLSegError
from fclseg.resources import BUNDLES, JOBS, resource_folder, resource_names, shipped_model


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "where",
        help="print the folder of a bundle or a job",
        description="Print the folder of a bundle or job of this package. Without a name, list them all.",
        epilog='example:\n  python -m monai.bundle run --config_file "$(fclseg where acdc_unet)/configs/train.json"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", help="for example acdc_unet or fclopt_dp")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    folders = {name: resource_folder(kind) / name for kind in (BUNDLES, JOBS) for name in resource_names(kind)}
    if arguments.name is not None and arguments.name not in folders:
        raise FCLSegError(f"there is no bundle or job '{arguments.name}': choose one of {', '.join(folders)}")
    chosen = {name: folder for name, folder in folders.items() if arguments.name in (None, name)}
    for folder in chosen.values():
        print(folder)
    if arguments.name is not None:
        _complete(arguments.name)
    return Answer(chosen)


def _complete(name: str) -> None:
    """Add the file of weights that MONAI's own commands read, if the bundle has weights."""
    if name not in resource_names(BUNDLES) or not shipped_model(name).is_file():
        return
    from fclseg.networks.plain_weights import plain_weights  # imports torch, which the other names do not need

    try:
        plain_weights(shipped_model(name))
    except FCLSegError as error:
        print(f"note: {error}", file=sys.stderr)
