"""``fclseg evaluate``: how good results are, by hospital and by group of patients."""

import argparse
from pathlib import Path

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands

DESCRIPTION = """Compare results with experts' label maps on the original grid.

RESULTS is a folder written by 'fclseg segment' (or any folder with files named like the images, with or without _seg).
LABELLED is the folder of images with label maps. Several pairs are scored together: RESULTS LABELLED RESULTS LABELLED.
Hospital, vendor and group are read from Info.cfg (Centre, Vendor, Group) or from a table (--patients).
Dice, volumes in per cent and ejection fractions are given per structure, mean and worst. HD95 is left out where
Info.cfg says 'Spacing: nominal'."""

EXAMPLES = """examples:
  fclseg evaluate results/ labelled/
  fclseg evaluate results/ labelled/ --half choose              # one half of the patients of each hospital and group
  fclseg evaluate new/ labelled/ --model my_model/model.safetensors --per-group 3
  fclseg evaluate res_a/ hospital_a/ res_b/ hospital_b/ --out comparison"""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "evaluate",
        help="compare results with experts' label maps, by hospital and group",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="RESULTS LABELLED", help="pairs of folders")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for tables and page (default: RESULTS/evaluation)"
    )
    parser.add_argument(
        "--patients",
        type=Path,
        metavar="CSV",
        help="table with the columns patient, hospital, vendor, group, spacing; folder, if it is about one of several",
    )
    parser.add_argument(
        "--half", choices=("choose", "report"), help="only this half of the patients of each hospital and group"
    )
    parser.add_argument(
        "--per-group", type=int, metavar="N", help="only the first N patients of each hospital and group"
    )
    parser.add_argument(
        "--model",
        type=Path,
        metavar="FILE",
        help="first segment, with this model, the patients that have no result yet",
    )
    parser.add_argument("--no-hd95", action="store_true", help="leave out the surface distance, which takes longest")
    parser.set_defaults(run=evaluate)


def evaluate(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import evaluate as run
    from fclseg.errors import FCLSegError

    folders = arguments.folders
    if len(folders) % 2:
        raise FCLSegError(f"{len(folders)} folders are given: give pairs of RESULTS LABELLED")
    pairs = list(zip(folders[::2], folders[1::2], strict=True))
    out = arguments.out or folders[0] / "evaluation"
    evaluated = run(
        pairs,
        out,
        patients=arguments.patients,
        half=arguments.half,
        per_group=arguments.per_group,
        hd95=not arguments.no_hd95,
        model=arguments.model,
    )
    print(evaluated.text())
    if evaluated.missing:
        print(f"{len(evaluated.missing)} labelled patients have no result, for example {evaluated.missing[0]}")
    print(f"written to {out}")
    return Answer({"out": out, **evaluated.figures(), "missing": evaluated.missing})
