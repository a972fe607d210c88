"""``fclseg segment``: label maps, measurements and a report for a scan, from a fine-tuned model."""

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

DESCRIPTION = """Segment scans and measure them: volumes, ejection fractions, mass.

DIR gets a label map per image, pictures, tables, and an HTML report per patient. Open DIR/index.html first: it lists
the patients, those to check by eye on top. The same command continues where it was stopped. If a file cannot be
segmented, the others still are, and the exit code is 1. Research only, not for clinical use."""

EXAMPLES = """examples:
  fclseg segment scan.nii.gz --out results                    # a volume, or a cine (4D): all phases
  fclseg segment patients/ --out results --workers 2          # a folder of patients, with an index page
  fclseg segment dicom_export/ --out results                  # a cine series exported by the scanner
  fclseg segment scan.nii.gz --out results --height 172 --weight 70 --heart-rate 64
  fclseg segment patients/ --out results --model my_model/model.safetensors"""


def register(subparsers) -> None:
    parser = subparsers.add_parser(
        "segment",
        help="segment scans and measure them",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scan", nargs="?", metavar="SCAN", help="NIfTI file, folder of images, or folder of DICOM files"
    )
    parser.add_argument("--ed", metavar="FILE", help="end-diastolic volume; use --ed and --es instead of SCAN")
    parser.add_argument("--es", metavar="FILE", help="end-systolic volume of the same patient")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the results")
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="fine-tuned model.safetensors (default: the shipped weights)"
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
    parser.set_defaults(run=segment)


def segment(arguments: argparse.Namespace) -> int:
    from fclseg.cli.options import positive
    from fclseg.device import choose_device
    from fclseg.dicom.read import holds_dicom
    from fclseg.inference.body import stated_body
    from fclseg.inference.cases import find_cases
    from fclseg.inference.run import Inference
    from fclseg.inference.segment import Segmenter
    from fclseg.inference.shipped import weights_for
    from fclseg.networks.model_file import load_model

    workers = positive(arguments.workers, "--workers")
    body = stated_body(arguments.height, arguments.weight, arguments.heart_rate)
    scan, imported = arguments.scan, None
    if scan is not None and Path(scan).is_dir() and holds_dicom(Path(scan)):
        from fclseg.dicom.importing import import_folder

        imported = import_folder(Path(scan), arguments.out / "images", keep_sources=True)
        for remark in imported.left_out:
            print(f"left out: {remark}")
        scan = str(arguments.out / "images")
    results = None if imported else str(arguments.out)
    cases = find_cases(scan, arguments.ed, arguments.es, results, all_phases=arguments.all_phases or bool(imported))
    checkpoint = arguments.model or weights_for(cases)
    model = load_model(checkpoint)
    export = None
    if imported:
        from fclseg.dicom.results import write_phases

        cases = replace(cases, refused=(*cases.refused, *imported.problems))
        export = partial(write_phases, out=arguments.out, imported=imported, anatomy=model.anatomy)
    Inference(Segmenter(model, choose_device()), cases, arguments.out, checkpoint, workers, body, export).run()
    return 0
