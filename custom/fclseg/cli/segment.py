"""``fclseg segment``: label maps, measurements and a report for a scan, from a fine-tuned model."""

import argparse
from pathlib import Path

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands

DESCRIPTION = """Segment scans and measure them: volumes, ejection fractions, mass.

DIR gets a label map per image, pictures, tables, and an HTML report per patient. Open DIR/index.html first: it lists
the patients, those to check by eye on top. The same command continues where it was stopped. If a file cannot be
segmented, the others still are, and the exit code is 1. Research only, not for clinical use."""

EXAMPLES = """examples:
  fclseg segment scan.nii.gz --out results                    # a volume, or a cine (4D): all phases
  fclseg segment patients/ --out results --workers 2          # a folder of patients, with an index page
  fclseg segment dicom_export/ --out results --pdf            # the short-axis cine of an export; DICOM results, too
  fclseg segment exam.zip --out results --earlier results_2024/
  fclseg segment scan.nii.gz --out results --height 172 --weight 70 --heart-rate 64
  fclseg segment patients/ --out results --model my_model/model.safetensors"""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "segment",
        help="segment scans and measure them",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scan",
        nargs="?",
        type=Path,
        metavar="SCAN",
        help="NIfTI file, folder of images, DICOM folder or file, or a zip archive of one of these",
    )
    parser.add_argument(
        "--ed", type=Path, metavar="FILE", help="end-diastolic volume; use --ed and --es instead of SCAN"
    )
    parser.add_argument("--es", type=Path, metavar="FILE", help="end-systolic volume of the same patient")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the results")
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="fine-tuned model.safetensors (default: the shipped weights)"
    )
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="from 'fclseg calibrate' (default: that beside the model, if any)",
    )
    parser.add_argument(
        "--all-phases", action="store_true", help="segment all frames of a cine even if ED and ES are named"
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="number of patients processed in parallel (default 1)"
    )
    parser.add_argument(
        "--height", type=float, metavar="CM", help="height of the patient, for values per body surface area"
    )
    parser.add_argument(
        "--weight", type=float, metavar="KG", help="weight of the patient, for values per body surface area"
    )
    parser.add_argument(
        "--heart-rate", type=float, metavar="BPM", help="heart rate of the patient, for the cardiac output"
    )
    parser.add_argument("--sex", choices=("male", "female"), help="sex of the patient, for normal ranges")
    parser.add_argument("--age", type=float, metavar="YEARS", help="age of the patient, for normal ranges")
    parser.add_argument(
        "--earlier", type=Path, metavar="DIR", help="results of an earlier exam of the patient, for comparison"
    )
    parser.add_argument("--pdf", action="store_true", help="also write each report as a PDF")
    parser.set_defaults(run=segment)


def segment(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import segment as run

    results = run(
        arguments.scan,
        arguments.out,
        arguments.model,
        ed=arguments.ed,
        es=arguments.es,
        calibration=arguments.calibration,
        all_phases=arguments.all_phases,
        workers=arguments.workers,
        height=arguments.height,
        weight=arguments.weight,
        heart_rate=arguments.heart_rate,
        sex=arguments.sex,
        age=arguments.age,
        earlier=arguments.earlier,
        pdf=arguments.pdf,
    )
    return Answer({"out": arguments.out, "patients": results})
