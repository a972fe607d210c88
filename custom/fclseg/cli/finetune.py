"""``fclseg finetune``: train a segmentation model on labelled patients with the bundle of their anatomy."""

import argparse
from pathlib import Path

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands

EXAMPLES = """examples:
  fclseg finetune labelled/ --out my_model                    # from the shipped weights: one patient helps already
  fclseg finetune labelled/ --out my_model --network none     # from random weights
  fclseg finetune labelled/ --out my_model --encoder runs/fcl/encoder.safetensors
  fclseg segment scan.nii.gz --out results --model my_model/model.safetensors"""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "finetune",
        help="train a segmentation model on labelled patients",
        description="Fine-tune on a folder of labelled patients: from the shipped weights for a few steps, or from "
        "others until the loss has converged. A quarter of the patients is held out.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="LABELLED", help="folder of images with label maps")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the model and its scores")
    parser.add_argument("--encoder", type=Path, metavar="FILE", help="start from a pre-trained encoder instead")
    parser.add_argument(
        "--network",
        metavar="FILE",
        help="the network to start from: a file, for example a run's model.safetensors, or 'none' for random weights "
        "(default: the shipped weights, if they have this preset)",
    )
    parser.add_argument("--preset", metavar="NAME", help="default: that of the network to start from, otherwise small")
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
