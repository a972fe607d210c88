"""The bundles as a user runs them.

Training is typed: ``python -m monai.bundle run ...``. What follows calls the function behind that command, because a
process of its own takes ten times longer to import MONAI than to do the work.
"""

import csv
import json
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.bundle import ConfigWorkflow, ckpt_export, run, verify_metadata, verify_net_in_out

from fclseg.errors import FCLSegError
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.loading import save_encoder
from fclseg.networks.model_file import load_model
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset

ROOT = Path(__file__).resolve().parents[2]
BUNDLES = ROOT / "bundles"
SCHEMA = str(BUNDLES / "metadata_schema.json")
NAMES = ("acdc_unet", "hvsmr_unet")
DEAF = "http://127.0.0.1:9"


def config(bundle, name):
    return str(BUNDLES / bundle / "configs" / f"{name}.json")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Phantom patients, and an encoder with the demo preset's shape. No network access: a proxy that never answers."""
    folder = tmp_path_factory.mktemp("bundles")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "FCLSEG_CACHE": folder / "cache",
            **dict.fromkeys(("http_proxy", "https_proxy"), DEAF),
        }.items():
            patch.setenv(name, str(value))
        yield filled(folder)


def filled(folder):
    write_phantom(folder / "acdc", "acdc", patients=3, seed=1, frames=2)
    write_phantom(folder / "hvsmr", "hvsmr", patients=2, seed=1, frames=2)
    save_encoder(folder / "encoder.safetensors", FreezableUNet(get_preset("demo").networks.channels, 4).encoder, {})
    return folder


@pytest.fixture(scope="module")
def trained(place):
    """The output folder of one short training, and what it printed."""
    command = [
        sys.executable, "-m", "monai.bundle", "run", "--config_file", config("acdc_unet", "train"), "--bundle_root",
        BUNDLES / "acdc_unet", "--dataset_dir", place / "acdc", "--output_dir", place / "out", "--preset", "demo",
        "--epochs", 2, "--pretrained_encoder", place / "encoder.safetensors",
    ]  # fmt: skip
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place / "out", done.stdout


@pytest.fixture
def run_bundle(monkeypatch, capsys):
    """What ``monai.bundle run`` prints."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # the config replaces it; put it back afterwards

    def run_bundle(*names, **options):
        given = {name: str(value) for name, value in options.items()}
        capsys.readouterr()
        run(config_file=[config("acdc_unet", name) for name in names], logging_file=False, **given)
        return capsys.readouterr().out

    return run_bundle


def test_train(trained):
    folder, printed = trained
    assert {path.name for path in folder.iterdir()} == {
        "model.safetensors", "model.pt", "training.json", "evaluation.csv", "evaluation.json", "agreement.png",
    }  # fmt: skip
    assert "0 missing, 0 unexpected" in printed and "held-out patients: mean Dice" in printed
    record = json.loads((folder / "training.json").read_text())
    assert len(record["losses"]) == record["epochs"] == 2
    assert len(record["train_patients"]) == 2 and len(record["validation_patients"]) == 1


def test_evaluate_repeats_the_score_of_the_patients_that_training_held_out(trained, place, run_bundle):
    folder, printed = trained
    before = (folder / "evaluation.csv").read_text()
    (folder / "evaluation.csv").unlink()
    again = run_bundle("train", "evaluate", dataset_dir=place / "acdc", output_dir=folder)
    assert (folder / "evaluation.csv").read_text() == before
    assert next(line for line in again.splitlines() if "mean Dice" in line) in printed
    with open(folder / "evaluation.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    held_out = json.loads((folder / "training.json").read_text())["validation_patients"]
    assert {row["patient"] for row in rows} == set(held_out) and {row["phase"] for row in rows} == {"ED", "ES"}
    assert {"dice_RV", "dice_MYO", "dice_LV", "hd95_RV", "hd95_MYO", "hd95_LV"} < set(rows[0])


def test_inference_on_a_patient_folder(trained, place, run_bundle):
    options = {"output_dir": place / "clinic", "checkpoint": trained[0] / "model.safetensors"}
    assert "not for clinical use" in run_bundle("inference", input=place / "acdc" / "patient001", **options)
    images = list((place / "acdc" / "patient001").glob("*_frame??.nii.gz"))
    assert len(images) == 2
    for path in images:
        stem = path.name.removesuffix(".nii.gz")
        image, labels = nib.load(path), nib.load(place / "clinic" / f"{stem}_seg.nii.gz")
        assert labels.shape == image.shape and np.array_equal(labels.affine, image.affine)
        assert (place / "clinic" / f"{stem}_overlay.png").stat().st_size > 10_000
    rows = json.loads((place / "clinic" / "measurements.json").read_text())["volumes"]
    assert [row["phase"] for row in rows] == ["ED", "ES"] and {row["patient"] for row in rows} == {"patient001"}


def test_inference_delivers_the_dice_that_evaluation_promises(trained, place, run_bundle):
    """On the original grid, for the held-out patient: the same label maps, and therefore the same Dice."""
    folder, _ = trained
    content = json.loads((folder / "evaluation.json").read_text())
    rows = {(row["patient"], row["frame"]): row for row in content["volumes"]}
    (held_out,) = {patient for patient, _ in rows}
    options = {"output_dir": place / "promised", "checkpoint": folder / "model.safetensors"}
    run_bundle("inference", input=place / "acdc" / held_out, **options)
    for (patient, frame), row in rows.items():
        name = f"{patient}_frame{frame:02d}"
        found = np.asarray(nib.load(place / "promised" / f"{name}_seg.nii.gz").dataobj)
        truth = np.asarray(nib.load(place / "acdc" / patient / f"{name}_gt.nii.gz").dataobj)
        for value, structure in ((1, "RV"), (2, "MYO"), (3, "LV")):
            both = ((found == value) & (truth == value)).sum()
            size = (found == value).sum() + (truth == value).sum()
            assert row[f"dice_{structure}"] == pytest.approx(2 * both / size if size else 1.0, abs=1e-5)
        assert {"network_dice_LV", "ml_LV", "true_ml_LV"} < set(row)
    assert {"LV volume", "LV ejection fraction"} <= set(content["agreement"])


def test_export_to_torchscript_gives_the_same_labels(trained, place):
    exported = place / "model.ts"
    ckpt_export(
        "network_def", filepath=str(exported), ckpt_file=str(trained[0] / "model.pt"), preset="demo",
        meta_file=str(BUNDLES / "acdc_unet" / "configs" / "metadata.json"),
        config_file=config("acdc_unet", "train"), dataset_dir=str(place / "acdc"),
    )  # fmt: skip
    images = torch.rand(3, 1, 48, 48, generator=torch.Generator().manual_seed(0))
    network = load_model(trained[0] / "model.safetensors").network
    with torch.inference_mode():
        assert torch.equal(torch.jit.load(exported)(images).argmax(1), network(images).argmax(1))


def test_refusal_is_one_sentence_without_a_traceback(place, run_bundle, capsys):
    """By the hook that Python calls before it ends with exit code 1."""
    options = {"output_dir": place / "nothing", "checkpoint": place / "encoder.safetensors"}
    with pytest.raises((FCLSegError, RuntimeError)) as refusal:  # MONAI wraps it
        run_bundle("inference", input=place / "acdc", **options)
    capsys.readouterr()
    sys.excepthook(refusal.type, refusal.value, refusal.tb)
    (sentence,) = capsys.readouterr().err.splitlines()
    assert (
        sentence.startswith("fclseg: ") and "was never fine-tuned to segment" in sentence and "train.json" in sentence
    )
    assert not (place / "nothing").exists()


@pytest.mark.parametrize("bundle", NAMES)
def test_metadata_and_network_agree(place, bundle):
    metadata = str(BUNDLES / bundle / "configs" / "metadata.json")
    verify_metadata(meta_file=metadata, filepath=SCHEMA)
    for preset in ("demo", "small"):
        verify_net_in_out(
            "network_def", meta_file=metadata, config_file=config(bundle, "train"), n=4, device="cpu", preset=preset
        )


@pytest.mark.parametrize("missing", ["anatomy", "network_data_format", "version"])
def test_schema_notices_a_missing_field(tmp_path, missing):
    metadata = json.loads((BUNDLES / "acdc_unet" / "configs" / "metadata.json").read_text())
    del metadata[missing]
    (tmp_path / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(ValueError, match=missing):
        verify_metadata(meta_file=str(tmp_path / "metadata.json"), filepath=SCHEMA)


def test_hvsmr_bundle_trains_by_the_shared_config(place, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    workflow = ConfigWorkflow(
        config("hvsmr_unet", "train"), logging_file=False, dataset_dir=str(place / "hvsmr"), preset="demo", epochs=1,
        output_dir=str(place / "hvsmr_out"), progress=False, hd95=False,
    )  # fmt: skip
    workflow.initialize()
    assert workflow.check_properties() == []
    evaluation = workflow.run()[-1]
    assert evaluation.structures == ("MYO", "BP") and evaluation.rows
    assert (place / "hvsmr_out" / "model.safetensors").exists()


def test_inference_config_has_the_properties_that_monai_applications_expect(trained, place, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    workflow = ConfigWorkflow(
        config("acdc_unet", "inference"), logging_file=False, workflow_type="inference",
        output_dir=str(place / "unused"), dataset_dir=str(place / "acdc"),
        checkpoint=str(trained[0] / "model.safetensors"),
    )  # fmt: skip
    workflow.initialize()
    assert workflow.check_properties() == []
    assert len(workflow.dataset) == 6


@pytest.mark.parametrize("bundle", NAMES)
def test_bundle_is_complete(bundle):
    for name in ("configs/train.json", "configs/evaluate.json", "configs/inference.json", "configs/logging.conf",
                 "configs/metadata.json", "docs/README.md", "docs/data_license.txt", "LICENSE"):  # fmt: skip
        assert (BUNDLES / bundle / name).is_file(), f"{bundle} lacks {name}"


def test_what_the_bundles_share_is_the_same_in_each():
    shared = [f"configs/{name}" for name in ("train.json", "evaluate.json", "inference.json", "logging.conf")]
    for name in [*shared, "LICENSE"]:
        assert (BUNDLES / "hvsmr_unet" / name).read_bytes() == (BUNDLES / "acdc_unet" / name).read_bytes()
