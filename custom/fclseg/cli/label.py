"""``fclseg label``: outline slices on a local page, and train on them."""

import argparse
from pathlib import Path

from fclseg.cli.options import Commands

DESCRIPTION = """Label images on a page in the browser of this machine. No account, no internet.

The page shows the network's outlines and proposes about 20 slices of many patients to correct: drag an outline, brush,
erase, copy from a neighbour, or say that there is no ventricle. Everything is saved at once to LABELS, which has the
layout of the data set: fclseg finetune and fclseg data check take it as it is. "Train now" improves the network in the
background and shows what changed in the other patients. Press ? on the page for all keys."""

EXAMPLES = """examples:
  fclseg label patients/ --out labels
  fclseg label patients/ --out labels --model my_model/model.safetensors --who anna
  fclseg finetune labels --out my_model --network shipped"""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "label",
        help="outline slices on a local page, and train on them",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of images; nothing in it is changed")
    parser.add_argument("--out", type=Path, required=True, metavar="LABELS", help="folder for the labels")
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="network to start from (default: the shipped weights)"
    )
    parser.add_argument("--who", default="", metavar="NAME", help="who labels (default: the name of this account)")
    parser.add_argument("--slices", type=int, default=20, metavar="N", help="slices to propose at a time (default 20)")
    parser.add_argument(
        "--single-slices",
        action="store_true",
        help="label maps that another program wrote to LABELS: slices without any structure are not labelled",
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the link instead of opening it")
    parser.set_defaults(run=label)


def label(arguments: argparse.Namespace) -> int:
    from fclseg.api.labelling import label as open_page
    from fclseg.cli.options import positive

    open_page(
        arguments.data,
        arguments.out,
        arguments.model,
        who=arguments.who,
        slices=positive(arguments.slices, "--slices"),
        single_slices=arguments.single_slices,
        port=arguments.port,
        browser=not arguments.no_browser,
    )
    return 0
