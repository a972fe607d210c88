"""``fclseg finetune`` and ``fclseg segment`` as a user types them, from a folder that is not the project's."""

import json
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch

from fclseg.errors import FCLSegError
from fclseg.networks.loading import read_tensors, write_tensors
from fclseg.networks.model_file import load_model
from fclseg.phantom.dataset import write_phantom


def fclseg(*arguments, folder):
    command = [Path(sys.executable).with_name("fclseg"), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clinic")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCLSEG_CACHE", str(folder / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        write_phantom(folder / "data", "acdc", patients=3, seed=1, frames=4)
        run = fclseg("finetune", "data", "--out", "model", "--preset", "demo", "--epochs", 12, folder=folder)
        assert run.returncode == 0, run.stderr
        assert "held-out patients: mean Dice" in run.stdout and "Traceback" not in run.stderr
        yield folder


def test_a_cine_without_named_phases(place):
    (place / "scans" / "anna").mkdir(parents=True)
    cine = place / "data" / "patient001" / "patient001_4d.nii.gz"
    (place / "scans" / "anna" / "anna.nii.gz").write_bytes(cine.read_bytes())
    options = ("--out", "results", "--model", "model/model.safetensors")
    run = fclseg("segment", "scans", *options, folder=place)
    assert run.returncode == 0, run.stderr
    assert "not for clinical use" in run.stdout and "UserWarning" not in run.stderr
    labels = nib.load(place / "results" / "anna_seg.nii.gz")
    image = nib.load(cine)
    assert labels.shape == image.shape and np.array_equal(labels.affine, image.affine)
    content = json.loads((place / "results" / "measurements.json").read_text())
    assert len(content["volumes"]) == 4 and "anna" in content["patients"]
    assert (place / "results" / "index.html").is_file() and (place / "results" / "anna_report.html").is_file()
    (place / "scans" / "bad.nii.gz").write_text("no image")
    run = fclseg("segment", "scans", *options, folder=place)
    assert run.returncode == 1 and run.stderr.splitlines()[-1].startswith("fclseg: 1 of 2 refused: ")


def nan(tensors, metadata):
    tensors["decoder.head.bias"][0] = torch.nan


def whole_numbers(tensors, metadata):
    tensors["decoder.head.bias"] = tensors["decoder.head.bias"].to(torch.int32)


def forget(name):
    return lambda tensors, metadata: metadata.pop(name)


def change(name, value):
    return lambda tensors, metadata: metadata.update({name: value})


BROKEN = [
    nan, whole_numbers, forget("anatomy"), forget("channels"), forget("image_size"), change("anatomy", "[" * 9000),
    change("channels", "8-x"), change("channels", "8"), change("image_size", "9" * 5000), change("image_size", "-3"),
    change("spacing_mm", "nan"), change("spacing_mm", "0"), change("anatomy", "7"), forget("preset"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_broken_model_is_one_sentence(place, tmp_path, number):
    tensors, metadata = read_tensors(place / "model" / "model.safetensors")
    BROKEN[number](tensors, metadata)
    write_tensors(tmp_path / "model.safetensors", tensors, metadata)
    with pytest.raises(FCLSegError, match=r"model\.safetensors") as error:
        load_model(tmp_path / "model.safetensors")
    assert "\n" not in str(error.value)
