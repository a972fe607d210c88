"""``fclseg data``: make a phantom data set, check a folder, split its patients across sites and folds."""

import argparse
from collections.abc import Callable
from pathlib import Path

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands
from fclseg.text import printable

SITES = 10
"""The paper's number of sites, as in ``fclseg.api.data``, which takes seconds to import."""

EXAMPLES = {
    "phantom": "fclseg data phantom --anatomy acdc --out data/phantom --patients 20 --sites 4 --seed 1",
    "check": "fclseg data check data/acdc\n  fclseg data check data/acdc --splits splits.json",
    "import": "fclseg data import dicom_export data/hospital",
    "join": "fclseg data join hospitals acdc mnms\n  fclseg data split hospitals --sites-by centre --out splits.json",
    "split": "fclseg data split data/acdc --sites 10 --out splits.json\n"
    "  fclseg data split data/hospitals --out splits.json   # data/hospitals/site-1/..., data/hospitals/site-2/...\n"
    "  fclseg data split data/phantom --from data/phantom/sites.csv --folds 5 --out splits.json",
}


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "data",
        help="make, check and split data sets",
        description="Make a phantom data set, check a folder of cardiac MRI, or split patients across sites and folds.",
    )
    commands = parser.add_subparsers(title="data commands", metavar="COMMAND", required=True)
    _register_phantom(_command(commands, "phantom", "write a synthetic data set; no patient data needed", phantom))
    _register_check(_command(commands, "check", "list what a folder contains and every problem with it", check))
    _register_import(
        _command(
            commands,
            "import",
            "convert DICOM series to the training layout and replace patient names by codes",
            import_,
        )
    )
    _register_join(
        _command(commands, "join", "make one data set of several; each becomes a hospital, or several by centre", join)
    )
    _register_split(
        _command(commands, "split", "split patients across sites and folds and write the split as JSON", split)
    )


def _register_join(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="new folder, with links to the images")
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="folders of patients in ACDC's layout")


def _command(
    commands: Commands, name: str, summary: str, run: Callable[[argparse.Namespace], object]
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"examples:\n  {EXAMPLES[name]}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def _register_phantom(parser: argparse.ArgumentParser) -> None:
    _add_anatomy(parser, ("acdc", "hvsmr"), "acdc", "what to imitate (default acdc)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder to write")
    parser.add_argument("--patients", type=int, default=10, metavar="N", help="number of patients (default 10)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="random seed of the images (default 0)")
    parser.add_argument("--sites", type=int, default=1, metavar="K", help="number of different scanners (default 1)")
    parser.add_argument(
        "--family",
        default="seen",
        choices=("seen", "unseen"),
        help="hearts and scanners like those that the shipped networks were trained on, or others (default seen)",
    )


def _register_check(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument("--splits", type=Path, metavar="FILE", help="also check that this splits file fits the folder")


def _register_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="DICOM_DIR", help="folder exported by the scanner or the archive")
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="new folder to write; the key (patient to code) is written next to it"
    )


def _register_split(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON file to write")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--sites",
        type=int,
        metavar="K",
        help=f"split at random across K sites (default: the folders site-... if every image is in one, else {SITES})",
    )
    how.add_argument(
        "--from",
        type=Path,
        dest="assignment",
        metavar="FILE",
        help="CSV or JSON that assigns each patient to a site (columns patient,site)",
    )
    how.add_argument("--sites-by", metavar="WHAT", help="sites are hospitals: an entry of Info.cfg such as centre")
    parser.add_argument("--folds", type=int, default=5, metavar="F", help="cross-validation folds per site (default 5)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="random seed of the split (default 0)")
    parser.add_argument("--force", action="store_true", help="replace FILE even if it contains a different split")


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of NIfTI images")
    from fclseg.anatomy.folders import AUTO
    from fclseg.anatomy.registry import ANATOMIES

    known = "what the folder contains; nifti is a plain folder of images (default: recognised by file names)"
    _add_anatomy(parser, (AUTO, *ANATOMIES), AUTO, known)


def _add_anatomy(parser: argparse.ArgumentParser, choices: tuple[str, ...], default: str, words: str) -> None:
    parser.add_argument("--anatomy", choices=choices, default=default, help=words)


def phantom(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import data

    paths = data.phantom(
        arguments.out,
        arguments.anatomy,
        patients=arguments.patients,
        sites=arguments.sites,
        seed=arguments.seed,
        family=arguments.family,
    )
    print(f"{arguments.out}: {len(paths)} phantom patients, stored like {arguments.anatomy}")
    if arguments.sites > 1:
        table = arguments.out / data.SITE_TABLE
        print(f"{table}: which of the {arguments.sites} scanners imaged each patient; for fclseg data split --from")
    return Answer({"out": arguments.out, "patients": paths})


def check(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import data

    report = data.check(arguments.folder, arguments.anatomy, splits=arguments.splits)
    print(f"{'patient':<20} {'site':<10} {'labelled':>9} {'unlabelled':>11}  axes, grid and voxel size in mm")
    for row in report.patients:
        sizes = ", ".join("x".join(f"{n:.3g}" for n in size) for size in [*sorted(row.grids), *sorted(row.spacings)])
        sizes = f"{' '.join(sorted(row.codes))}, {sizes}"
        who = f"{printable(row.patient):<20} {printable(row.site or '-'):<10}"
        print(f"{who} {row.labelled:>9} {row.unlabelled:>11}  {sizes}")
    print(
        f"\n{arguments.folder} ({report.anatomy.title}): {len(report.patients)} patients, "
        f"{report.labelled} labelled frames, {report.unlabelled} unlabelled frames"
    )
    if report.partly:
        print(f"partly labelled: {report.partly} (training uses the labelled ones)")
    for warning in report.warnings:
        print(f"warning: {warning}")
    print(f"{len(report.problems)} problem{'s' * (len(report.problems) > 1)}:" if report.problems else "no problem")
    for problem in report.problems:
        print(f"- {printable(problem)}")
    facts = {"anatomy": report.anatomy.name, "labelled": report.labelled, "unlabelled": report.unlabelled}
    facts |= {"patients": report.patients, "warnings": report.warnings, "problems": report.problems}
    return Answer(facts, 1 if report.problems else 0)


def import_(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import data

    imported = data.import_dicom(arguments.source, arguments.out)
    print(f"{arguments.out}: {len(imported.patients)} patients, with codes instead of names")
    print(f"{imported.key}: which code belongs to which patient; keep it where the images came from")
    for remark in imported.left_out:
        print(f"- left out: {remark}")
    for code, notes in imported.notes.items():
        print("".join(f"- {code}: {note}\n" for note in notes), end="")
    for problem in imported.problems:
        print(f"- {problem}")
    return Answer(imported, 1 if imported.problems else 0)


def join(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import data

    made = data.join(arguments.out, *arguments.folders)
    print(f"{arguments.out}: {len(made)} patients of {len(arguments.folders)} data sets; for --sites-by centre")
    return Answer({"out": arguments.out, "patients": made})


def split(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import data

    splits = data.split(
        arguments.folder,
        arguments.out,
        anatomy=arguments.anatomy,
        sites=arguments.sites,
        assignment=arguments.assignment,
        sites_by=arguments.sites_by,
        folds=arguments.folds,
        seed=arguments.seed,
        force=arguments.force,
    )
    for site, group in splits.sites.items():
        print(f"{site}: {len(group)} patients, folds of {' '.join(str(len(fold)) for fold in splits.held_out[site])}")
    in_folds = sum(len(fold) for folds in splits.held_out.values() for fold in folds)
    if outside := len(splits.patients) - in_folds:
        print(f"{outside} of {len(splits.patients)} patients have no labels: used for pre-training only, in no fold")
    print(f"{arguments.out}: {len(splits.patients)} patients at {len(splits.sites)} sites, {splits.folds} folds each")
    return Answer({"out": arguments.out, "sites": splits.sites, "held_out": splits.held_out})
