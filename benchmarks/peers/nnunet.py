"""nnU-Net on the same labelled patients, with a budget of CPU time, scored by the same scorer.

    python benchmarks/peers/nnunet.py --train labelled/ --test held_out/ --cpu-minutes 2 --out build/nnunet_2

nnU-Net is installed into an environment of its own (build/nnunet_env) and is not a dependency of this project. Both
folders are in ACDC's layout. The budget is for training steps alone: planning, preprocessing and prediction are not
counted. A training step of nnU-Net takes a CPU core many seconds, so a budget of minutes shows what nnU-Net can do in
minutes, not what it can do.
"""

import argparse
import json
import os
import shutil
import subprocess
import venv
from pathlib import Path

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume
from fclseg.api import evaluate

HERE = Path(__file__).resolve().parent
DATASET, NAME = "501", "Dataset501_Peer"
TRAINER = "CpuBudgetTrainer"
LABELS = {"background": 0, "RV": 1, "MYO": 2, "LV": 3}


def environment(folder: Path) -> Path:
    """The environment's folder of programs, installed if it is not there."""
    programs = folder / "bin"
    if not (programs / "nnUNetv2_train").exists():
        print(f"installing nnU-Net into {folder}", flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([programs / "pip", "install", "--quiet", "torch==2.13.0", "nnunetv2==2.8.1"], check=True)
    found = subprocess.run(
        [programs / "python", "-c", "import nnunetv2; print(nnunetv2.__path__[0])"], check=True, capture_output=True
    )
    variants = Path(found.stdout.decode().strip()) / "training" / "nnUNetTrainer" / "variants"
    shutil.copy(HERE / "nnunet_trainer.py", variants / f"{TRAINER}.py")
    return programs


def write_raw(out: Path, train: list[Volume], test: list[Volume]) -> None:
    """The patients in the layout that nnU-Net reads."""
    raw = out / "raw" / NAME
    for folder, volumes in ((raw / "imagesTr", train), (out / "test", test)):
        folder.mkdir(parents=True, exist_ok=True)
        for volume in volumes:
            shutil.copy(volume.image, folder / f"{case(volume)}_0000.nii.gz")
    (raw / "labelsTr").mkdir(exist_ok=True)
    for volume in train:
        shutil.copy(str(volume.label), raw / "labelsTr" / f"{case(volume)}.nii.gz")
    about = {"channel_names": {"0": "cineMRI"}, "labels": LABELS, "numTraining": len(train), "file_ending": ".nii.gz"}
    (raw / "dataset.json").write_text(json.dumps(about, indent=2))


def case(volume: Volume) -> str:
    return Path(volume.image).name.removesuffix(".nii.gz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True, help="folder of labelled patients")
    parser.add_argument("--test", type=Path, required=True, help="folder of other labelled patients")
    parser.add_argument("--cpu-minutes", type=float, required=True, help="for the training steps")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--environment", type=Path, default=Path("build/nnunet_env"))
    parser.add_argument("--patients", type=Path, help="table of hospitals and groups, as in 'fclseg evaluate'")
    given = parser.parse_args()
    programs, out = environment(given.environment.absolute()), given.out.absolute()
    train, test = ([v for v in read_folder(folder, "acdc") if v.label] for folder in (given.train, given.test))
    write_raw(out, train, test)
    settings = {
        **os.environ,
        **{f"nnUNet_{name}": str(out / name) for name in ("raw", "preprocessed", "results")},
        "nnUNet_n_proc_DA": "0",  # augmentation in the training process, where its CPU time is counted
        "nnUNet_compile": "f",
        "OMP_NUM_THREADS": "1",
        "CPU_SECONDS": str(60 * given.cpu_minutes),
    }

    def run(program: str, *arguments: object) -> None:
        subprocess.run([programs / program, *map(str, arguments)], check=True, env=settings)

    run("nnUNetv2_plan_and_preprocess", "-d", DATASET, "-c", "2d", "-np", 1, "-npfp", 1)
    run("nnUNetv2_train", DATASET, "2d", "all", "-device", "cpu", "-tr", TRAINER)
    predict = ("-d", DATASET, "-c", "2d", "-f", "all", "-tr", TRAINER, "-device", "cpu", "-npp", 1, "-nps", 1)
    run("nnUNetv2_predict", "-i", out / "test", "-o", out / "predicted", *predict)
    scored = evaluate([(out / "predicted", given.test)], out=out / "evaluation", patients=given.patients, hd95=False)
    print(scored.text())


if __name__ == "__main__":
    main()
