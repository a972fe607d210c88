"""``fclseg finetune``: train a segmentation model on labelled patients with the bundle of their anatomy."""

import argparse
from pathlib import Path

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
    parser.add_argument("--preset", default="small", metavar="NAME", help="demo, small or paper (default small)")
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


def finetune(arguments: argparse.Namespace) -> int:
    from fclseg.anatomy.folders import folder_anatomy, read_folder
    from fclseg.federation.exchange import SHIPPED
    from fclseg.finetune.run import run_bundle
    from fclseg.resources import shipped_model

    anatomy = folder_anatomy(arguments.folder)
    changes: dict[str, object] = {
        "dataset_dir": arguments.folder,  # as Path and tuple, because MONAI executes strings that start with $
        "output_dir": arguments.out,
        "preset": arguments.preset,
        "seed": arguments.seed,
        "pretrained_encoder": arguments.encoder,
        "pretrained_network": shipped_model(anatomy.bundle)
        if arguments.network == SHIPPED
        else _path(arguments.network),
    }
    if arguments.epochs is not None:
        changes["epochs"] = arguments.epochs
    if arguments.train_on_all:
        labelled = sorted({volume.patient for volume in read_folder(arguments.folder) if volume.label is not None})
        changes |= {"train_patients": tuple(labelled), "validation_patients": ()}
    run_bundle(anatomy, changes)
    print(f"segment with it: fclseg segment SCAN --out RESULTS --model {arguments.out / 'model.safetensors'}")
    return 0


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
