"""Adding an organ takes one file and one bundle folder: a toy organ in a copy of the package, actually used."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
FAMILY = "custom/fclseg/anatomy/families/kidney.py"
BUNDLE = "bundles/kidney_unet"
SHARED = ("configs/train.json", "configs/evaluate.json", "configs/inference.json", "configs/logging.conf")
TYPED = "import sys; from fclseg.cli import main; sys.exit(main())"
PATIENTS = [f"kidney-{number}" for number in range(1, 5)]


def files_of(root):
    return {
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and "__pycache__" not in str(path)
    }


def add_organ(root):
    """Everything that a developer writes."""
    shutil.copy(Path(__file__).with_name("toy_family.py"), root / FAMILY)
    (root / BUNDLE / "configs").mkdir(parents=True)
    for name in SHARED:
        (root / BUNDLE / name).symlink_to(Path("../../acdc_unet") / name)
    metadata = json.loads((root / "bundles/acdc_unet/configs/metadata.json").read_text())
    metadata |= {"name": "Toy kidneys", "anatomy": "kidney", "label_classes": "0 background, 1 CORTEX, 2 CYST"}
    output = metadata["network_data_format"]["outputs"]["pred"]
    output |= {"num_channels": 3, "channel_def": {"0": "background", "1": "CORTEX", "2": "CYST"}}
    (root / BUNDLE / "configs/metadata.json").write_text(json.dumps(metadata, indent=4))


def write_images(folder):
    """Bright kidneys with a dark cyst, four patients."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    x, y = np.meshgrid(np.arange(40), np.arange(44), indexing="ij")
    for patient in PATIENTS:
        centre, radius = rng.uniform(16, 24, 2), rng.uniform(9, 12)
        labels = np.zeros((40, 44, 4), np.uint8)
        distance = np.hypot(x - centre[0], y - centre[1])
        labels[distance < radius], labels[distance < radius / 3] = 1, 2
        image = np.array([100.0, 700.0, 300.0])[labels] + rng.normal(scale=20, size=labels.shape)
        affine = np.diag([2.0, 2.0, 5.0, 1.0])
        nib.save(nib.Nifti1Image(image.astype(np.int16), affine), folder / f"{patient}.nii.gz")
        nib.save(nib.Nifti1Image(labels, affine), folder / f"{patient}-mask.nii.gz")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A copy of the package, the bundles and the jobs with the new organ, and images of it."""
    root = tmp_path_factory.mktemp("toy")
    for name in ("custom", "bundles", "jobs"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "models", "eval")
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=ignored)
    before = files_of(root)
    add_organ(root)
    added = files_of(root) - before
    assert added == {FAMILY, f"{BUNDLE}/configs/metadata.json", *(f"{BUNDLE}/{name}" for name in SHARED)}
    write_images(root / "data")
    return root


def python(place, *arguments, timeout=3000):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FCLSEG_")}
    environment |= {"PYTHONPATH": str(place / "custom"), "FCLSEG_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=place, env=environment, capture_output=True, text=True,
        timeout=timeout,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


BUNDLE_RUNS = f"""
from monai.bundle import run
configs = "{BUNDLE}/configs/"
run(config_file=configs + "train.json", meta_file=configs + "metadata.json", dataset_dir="data", output_dir="out",
    preset="demo", epochs=2, progress=False)
run(config_file=[configs + "train.json", configs + "evaluate.json"], meta_file=configs + "metadata.json",
    dataset_dir="data", output_dir="out", progress=False)
run(config_file=configs + "inference.json", meta_file=configs + "metadata.json", input="data/kidney-1.nii.gz",
    checkpoint="out/model.safetensors", output_dir="clinic")
"""


def test_data_check_knows_the_organ(place):
    printed = python(place, "-c", TYPED, "data", "check", "data")
    assert "(toy kidneys): 4 patients, 4 labelled frames, 0 unlabelled frames" in printed and "no problem" in printed
    help_text = python(place, "-c", TYPED, "data", "check", "--help")
    assert "{auto,acdc,hvsmr,kidney,nifti}" in help_text


def test_the_bundle_trains_evaluates_and_segments(place):
    printed = python(place, "-c", BUNDLE_RUNS)
    scores = json.loads((place / "out" / "evaluation.json").read_text())
    assert list(scores["dice"]) == ["CORTEX", "CYST"] == list(scores["hd95_mm"])
    record = json.loads((place / "out" / "training.json").read_text())
    assert sorted(record["train_patients"] + record["validation_patients"]) == PATIENTS
    assert printed.count("1 held-out patients: mean Dice") == 2, "training and evaluation score the same patient"
    labels = np.asarray(nib.load(place / "clinic" / "kidney-1_seg.nii.gz").dataobj)
    assert labels.shape == (40, 44, 4) and labels.max() <= 2
    (row,) = json.loads((place / "clinic" / "measurements.json").read_text())["volumes"]
    volumes = {name: (labels == value).sum() * 2 * 2 * 5 / 1000 for name, value in (("CORTEX", 1), ("CYST", 2))}
    assert (row["CORTEX_ml"], row["CYST_ml"]) == pytest.approx(tuple(volumes.values()), abs=0.006)
    assert row["CORTEX_g"] == pytest.approx(1.1 * volumes["CORTEX"], abs=0.006)
    assert (place / "clinic" / "kidney-1_overlay.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_sites_fine_tune_the_organ_together(place):
    job = "finetune_federated"
    options = "--preset demo --sites 2 --data data --set finetuning.epochs=2 --set finetuning.rounds=2 --name toy"
    printed = python(place, "-c", TYPED, "pretrain", "--job", job, *options.split())
    assert f"network: {place / 'runs' / 'toy' / 'model.safetensors'}" in printed
    settings = json.loads((place / "runs" / "toy" / "config.json").read_text())["settings"]
    assert settings["anatomy"] == "kidney"
    code = BUNDLE_RUNS[BUNDLE_RUNS.rindex("run(") :].replace("out/model", "runs/toy/model")
    python(place, "-c", f'from monai.bundle import run\nconfigs = "{BUNDLE}/configs/"\n{code}')
    assert set(np.unique(np.asarray(nib.load(place / "clinic" / "kidney-1_seg.nii.gz").dataobj))) <= {0, 1, 2}
