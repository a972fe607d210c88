"""``fclseg finetune``: train a segmentation model on labelled patients with the bundle of their anatomy."""

import argparse
from pathlib import Path

from fclseg.cli.answers import Answer

EXAMPLES = """examples:
  fclseg finetune labelled/ --out my_model
  fclseg finetune labelled/ --out my_model --network shipped
  fclseg finetune labelled/ --out my_model --encoder runs/fcl/encoder.safetensors
  fclseg segment scan.nii.gz --out results --model my_model/model.safetensors"""


def register(subparsers) -> None:
    parser = subparsers.add_parser(
        "finetune",
        help="train a segmentation model on labelled patients",
        description="Fine-tune on a folder of labelled patients until the loss has converged. A quarter is held out.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="LABELLED", help="folder of images with label maps")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the model and its scores")
    parser.add_argument("--encoder", type=Path, metavar="FILE", help="pre-trained encoder (default: random weights)")
    parser.add_argument(
        "--network",
        metavar="FILE",
        help="start from a whole network instead, for example a run's model.safetensors; 'shipped': the bundle's own "
        "weights, which were trained only on phantoms and are the best start with few labelled patients",
    )
    parser.add_argument(
        "--preset", default="small", metavar="NAME", help="demo, small, standard or paper (default small)"
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="train this many epochs instead of until convergence")
    parser.add_argument(
        "--train-on-all", action="store_true", help="hold out no patients; the model is then not scored"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="S",
        help="seed of the weights, batch order and held-out patients (default 0)",
    )
    parser.set_defaults(run=finetune)


def finetune(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import finetune as run

    tuned = run(
        arguments.folder,
        arguments.out,
        arguments.encoder,
        network=arguments.network,
        preset=arguments.preset,
        epochs=arguments.epochs,
        hold_out=not arguments.train_on_all,
        seed=arguments.seed,
    )
    print(f"segment with it: fclseg segment SCAN --out RESULTS --model {tuned.model}")
    dice = tuned.evaluation.mean_dice if tuned.evaluation.rows else None
    return Answer({"model": tuned.model, "dice": dice, "metrics": tuned.evaluation.means(), "losses": tuned.losses})
