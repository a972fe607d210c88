"""``fclseg calibrate``: how sure the numbers of a model are, learnt from labelled patients."""

import argparse
from pathlib import Path

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands

DESCRIPTION = """Learn from labelled patients how far the numbers of a model can be off.

Use patients that the model was not trained on. They are segmented (results are kept in RESULTS, the same command
continues there) and compared with the experts' label maps. The file model_calibration.json beside the model then gives
every volume, mass and ejection fraction an interval, predicts the Dice of every structure, and decides which results
are flagged. 'fclseg segment' uses it by itself. A site can calibrate the same model on its own patients."""

EXAMPLES = """examples:
  fclseg calibrate labelled/ --model my_model/model.safetensors --results checked
  fclseg calibrate labelled/ --results checked --half choose --check      # and what it is worth on the other half
  fclseg calibrate ours/ --results checked --out ours.json     # then: fclseg segment --calibration ours.json"""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "calibrate",
        help="learn from labelled patients how sure a model's numbers are",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("labelled", nargs="+", type=Path, metavar="LABELLED", help="folders of images with label maps")
    parser.add_argument("--model", type=Path, metavar="FILE", help="model.safetensors (default: the shipped weights)")
    parser.add_argument("--results", type=Path, required=True, metavar="DIR", help="folder for the patients' results")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: model_calibration.json beside the model")
    parser.add_argument("--patients", type=Path, metavar="CSV", help="table of hospitals and groups, as in 'evaluate'")
    parser.add_argument("--half", choices=("choose", "report"), help="only this half of each hospital and group")
    parser.add_argument("--check", action="store_true", help="with --half: show coverage and flags on the other half")
    parser.add_argument(
        "--per-group", type=int, metavar="N", help="only the first N patients of each hospital and group"
    )
    parser.add_argument("--coverage", type=float, default=0.9, metavar="P", help="of the intervals (default 0.9)")
    parser.set_defaults(run=calibrate)


def calibrate(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import calibrate as run
    from fclseg.errors import FCLSegError

    if not 0.5 <= arguments.coverage < 1:
        raise FCLSegError(f"--coverage {arguments.coverage:g} is not a coverage: give 0.5 to 0.99")
    if arguments.check and arguments.half is None:
        raise FCLSegError("--check needs --half: patients must not check what was fitted to them")
    outcome = run(
        arguments.labelled,
        arguments.results,
        arguments.model,
        arguments.out,
        patients=arguments.patients,
        half=arguments.half,
        check=arguments.check,
        per_group=arguments.per_group,
        coverage=arguments.coverage,
    )
    for name, (low, high) in outcome.calibration.errors.items():
        print(f"{name}: errors {low:+.2f} to {high:+.2f} of the scale, times 1 - predicted Dice")
    if outcome.checked is not None:
        print(outcome.checked.text())
    print(f"{outcome.calibration.patients} patients, written to {outcome.path}")
    checked = None if outcome.checked is None else outcome.checked.plain()
    return Answer({"calibration": outcome.path, "patients": outcome.calibration.patients, "checked": checked})
