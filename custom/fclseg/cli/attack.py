"""``fclseg attack``: what others can get out of what leaves a site in a run."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands, named_value
from fclseg.errors import FCLSegError

if TYPE_CHECKING:
    from fclseg.attacks.update import Situation
    from fclseg.privacy.protections import PrivacySettings

TEXTS = {
    "inversion": "rebuild slices from the features that leave (SSIM, PSNR, pictures)",
    "reidentify": "find a patient's vector from another frame of the patient (top-1 rate)",
    "membership": "tell whether a patient was in the training set, from the encoder (AUC)",
    "update": "rebuild slices from the update of a small site (SSIM, PSNR, pictures)",
}

EPILOG = """\
The attacker is another hospital: it has the patients of --known and everything that other sites and the server send.
All other patients in the data folder are victims. Compare each figure with that of a blind guess or of chance, which is
printed too; names that end in _error are standard errors over patients. docs/privacy.md has figures of real patients.

examples
  fclseg pretrain --job fcl --data ACDC --splits splits.json --name fcl
  fclseg attack inversion --run runs/fcl --data ACDC --splits splits.json --known site-1,site-2
  fclseg attack inversion --run runs/fcl --data ACDC --splits splits.json --known site-1,site-2 --protect perturb=0.5
      the same network, but features as they would leave with this protection
  fclseg pretrain --job fcl --data ACDC --splits splits.json --fold 0 --name without-fold-0
  fclseg attack membership --run runs/without-fold-0 --data ACDC --splits splits.json --known site-1,site-2
      compares victims that the run was trained on with those of the fold that it left out
  fclseg attack update --run runs/fcl --data ACDC --splits splits.json --known site-1,site-2 --slices 16 --real
      a step towards a real round; the default, one step on one slice, is as easy as it gets
"""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "attack",
        help="measure what an attacker gets out of features, encoders and updates",
        description="Attack a run and print how well it worked.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    lines = "; ".join(f"{name}: {text}" for name, text in TEXTS.items())
    parser.add_argument("attack", choices=list(TEXTS), metavar="ATTACK", help=lines)
    parser.add_argument("--run", dest="folder", type=Path, required=True, metavar="DIR", help="the server's run folder")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="images of all patients")
    parser.add_argument("--splits", type=Path, required=True, metavar="FILE", help="the split that the run used")
    parser.add_argument(
        "--known", required=True, metavar="SITES", help="the attacker's sites, for example site-1,site-2"
    )
    parser.add_argument(
        "--protect", action="append", default=[], metavar="NAME=VALUE",
        help="a protection instead of the run's own, such as perturb=0.5 or feature_noise=0.3; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--slices", type=int, default=1, metavar="N", help="update: slices that the site trains on (default 1)"
    )
    parser.add_argument(
        "--steps", type=int, default=1, metavar="N", help="update: optimiser steps before the upload (default 1)"
    )
    parser.add_argument(
        "--real", action="store_true",
        help="update: random views and the method's own optimiser; default: slices as they are and plain gradient "
        "descent, which is easier to attack",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the attack (default 0)")
    parser.add_argument("--out", type=Path, default=Path("attacks"), metavar="DIR", help="for figures and pictures")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    from fclseg.attacks.report import ATTACKS
    from fclseg.attacks.target import open_target
    from fclseg.files import private_folder, write_text

    privacy = _protections(arguments.protect)
    target = open_target(arguments.folder, arguments.data, arguments.splits, arguments.known.split(","))
    chosen = target.settings.privacy if privacy is None else privacy
    more = {"situation": _situation(arguments)} if arguments.attack == "update" else {}
    figures = ATTACKS[arguments.attack](target, chosen, arguments.out, arguments.seed, **more)
    for name, value in figures.items():
        print(f"{name:<18} {value:.3f}" if isinstance(value, float) else f"{name:<18} {value}")
    private_folder(arguments.out)
    document = {"attack": arguments.attack, "run": arguments.folder.name, "protections": chosen.shown(), **figures}
    write_text(arguments.out / f"{arguments.attack}.json", json.dumps(document, indent=2) + "\n")
    return Answer(document)


def _situation(arguments: argparse.Namespace) -> "Situation":
    from fclseg.attacks.update import Situation

    for name in ("slices", "steps"):
        if getattr(arguments, name) < 1:
            raise FCLSegError(f"--{name} is {getattr(arguments, name)}: give a whole number of at least 1")
    return Situation(arguments.slices, arguments.steps, arguments.real)


def _protections(given: list[str]) -> "PrivacySettings | None":
    """None where the run's own hold."""
    from fclseg.privacy.protections import NAMES, PrivacySettings, check_privacy

    if not given:
        return None
    values: dict[str, Any] = dict(named_value(text, "--protect", "perturb=0.5") for text in given)
    if unknown := sorted(set(values) - set(NAMES)):
        raise FCLSegError(f"there is no protection '{unknown[0]}': choose from {', '.join(NAMES)}")
    check_privacy(values, "--protect")
    return PrivacySettings(**values)
