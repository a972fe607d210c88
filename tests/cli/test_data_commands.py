"""``fclseg data`` as a user runs it: in its own process, with exit codes and one-sentence errors."""

import gzip
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from fclseg.cli import main
from fclseg.data.sites import Splits
from fclseg.phantom.dataset import write_phantom

PATIENTS = 16


def fclseg(*arguments):
    command = [Path(sys.executable).with_name("fclseg"), "data", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def phantom(tmp_path_factory):
    """A phantom written by the command itself."""
    out = tmp_path_factory.mktemp("phantom") / "acdc"
    run = fclseg("phantom", "--anatomy", "acdc", "--out", out, "--patients", 6, "--seed", 3, "--sites", 2)
    assert run.returncode == 0, run.stderr
    assert "6 phantom patients" in run.stdout and "sites.csv" in run.stdout
    return out


def test_check_of_a_healthy_folder(phantom):
    run = fclseg("check", phantom)
    assert run.returncode == 0 and run.stderr == ""
    assert "6 patients, 12 labelled frames" in run.stdout and run.stdout.rstrip().endswith("no problem")
    assert all(f"patient{number:03d}" in run.stdout for number in range(1, 7))


def test_hvsmr_phantom_is_checked_and_keeps_its_scanners(tmp_path, capsys):
    out = tmp_path / "hvsmr"
    assert main(["data", "phantom", "--anatomy", "hvsmr", "--out", str(out), "--patients", "2", "--sites", "2"]) == 0
    assert (out / "sites.csv").read_text().split() == ["patient,site", "pat0,site-1", "pat1,site-2"]
    assert main(["data", "check", str(out)]) == 0
    assert "(axial cardiovascular MRI (HVSMR 2016)): 2 patients, 2 labelled frames" in capsys.readouterr().out


def rewrite(path, change):
    image = nib.load(path)
    voxels = change(np.asanyarray(image.dataobj))
    nib.save(nib.Nifti1Image(voxels, image.affine), path)


def poke(value):
    def change(voxels):
        voxels = voxels.astype(np.float32)
        voxels[tuple(size // 2 for size in voxels.shape)] = value
        return voxels

    return change


def only(folder, pattern):
    return next(iter(sorted(folder.glob(pattern))))


def not_gzip(folder):
    path = only(folder, "*_frame01.nii.gz")
    path.write_bytes(gzip.decompress(path.read_bytes()))


def truncate(folder):
    path = only(folder, "*_frame01.nii.gz")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


FAULTS = {
    "truncated image": (truncate, "_frame01.nii.gz: is truncated"),
    "not gzip": (not_gzip, "_frame01.nii.gz: is not a gzip file"),
    "label of another shape": (
        lambda f: rewrite(only(f, "*_frame01_gt*"), lambda v: v[:-1]),
        "_frame01_gt.nii.gz: the label map has shape",
    ),
    "label value": (
        lambda f: rewrite(only(f, "*_frame01_gt*"), poke(7)),
        "_frame01_gt.nii.gz: the label map contains the value 7",
    ),
    "NaN": (lambda f: rewrite(only(f, "*_frame01.nii.gz"), poke(np.nan)), "_frame01.nii.gz: the image contains NaN"),
    "infinite": (
        lambda f: rewrite(only(f, "*_frame01.nii.gz"), poke(np.inf)),
        "_frame01.nii.gz: the image contains NaN, inf",
    ),
    "constant": (
        lambda f: rewrite(only(f, "*_frame01.nii.gz"), lambda v: np.full_like(v, 5)),
        "_frame01.nii.gz: the image is constant",
    ),
    "4D where 3D": (
        lambda f: rewrite(only(f, "*_frame01.nii.gz"), lambda v: np.stack([v, v], -1)),
        "_frame01.nii.gz: is 4D, but a 3D volume",
    ),
    "no Info.cfg": (lambda f: (f / "Info.cfg").unlink(), "Info.cfg: is missing"),
    "Info.cfg without phases": (lambda f: (f / "Info.cfg").write_text("ED: one\nES: 2\n"), "Info.cfg: has no line 'ED"),
    "emptied folder": (lambda f: [path.unlink() for path in f.iterdir()], ": the folder is empty"),
    "duplicate patient": (lambda f: shutil.copytree(f, f.parent / "copies" / f.name), " is also in"),
    "label without image": (
        lambda f: only(f, "*_frame01.nii.gz").unlink(),
        "_frame01_gt.nii.gz: is a label map without",
    ),
    "truncated label": (
        lambda f: only(f, "*_frame01_gt*").write_bytes(only(f, "*_frame01_gt*").read_bytes()[:-20]),
        "_frame01_gt.nii.gz: is truncated",
    ),
}


def test_every_planted_fault_is_named(tmp_path):
    """One fault per patient, the last two patients healthy: as many problems as faults, each with its file."""
    data = tmp_path / "data"
    write_phantom(data, patients=PATIENTS, frames=2, seed=1)
    assert len(FAULTS) >= 10 and len(FAULTS) + 2 == PATIENTS
    for number, (plant, _) in enumerate(FAULTS.values(), start=1):
        plant(data / f"patient{number:03d}")
    run = fclseg("check", data)
    problems = [line for line in run.stdout.splitlines() if line.startswith("- ")]
    assert run.returncode == 1 and "Traceback" not in run.stdout + run.stderr
    for number, (name, (_, sentence)) in enumerate(FAULTS.items(), start=1):
        patient = f"patient{number:03d}"
        assert any(patient in line and sentence in line for line in problems), f"{name}: {problems}"
    assert len(problems) == len(FAULTS), "\n".join(problems)
    assert f"{len(FAULTS)} problems:" in run.stdout


@pytest.mark.parametrize("kind", ["empty", "file", "missing"])
def test_check_of_what_is_no_data_folder(tmp_path, kind):
    path = tmp_path / kind
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.touch()
    run = fclseg("check", path)
    assert run.returncode == 1 and len(run.stderr.splitlines()) == 1
    assert run.stderr.startswith(f"fclseg: {path}: ")


def test_split_at_random_and_from_a_table(phantom, tmp_path, capsys):
    out = tmp_path / "splits.json"
    command = ["data", "split", str(phantom), "--out", str(out), "--folds", "2"]
    assert main([*command, "--sites", "3"]) == 0
    assert [len(group) for group in Splits.load(out).sites.values()] == [2, 2, 2]
    assert main([*command, "--sites", "3"]) == 0, "the same split again is no change"
    first = out.read_bytes()
    assert main([*command, "--from", str(phantom / "sites.csv")]) == 1
    assert "contains a different split" in capsys.readouterr().err and out.read_bytes() == first
    assert main([*command, "--from", str(phantom / "sites.csv"), "--force"]) == 0
    assert Splits.load(out).sites == {
        "site-1": ["patient001", "patient003", "patient005"],
        "site-2": ["patient002", "patient004", "patient006"],
    }
    assert main(["data", "check", str(phantom), "--splits", str(out)]) == 0


def test_patients_without_labels_are_at_a_site_and_in_no_fold(phantom, tmp_path, capsys):
    data, out = shutil.copytree(phantom, tmp_path / "data"), tmp_path / "splits.json"
    command = ["data", "split", str(data), "--out", str(out), "--sites", "1", "--folds", "2", "--force"]
    for path in (data / "patient002").glob("*_gt.nii.gz"):
        path.unlink()
    assert main(command) == 0 and "1 of 6 patients have no labels" in capsys.readouterr().out
    splits = Splits.load(out)
    assert "patient002" in splits.sites["site-1"]
    assert sorted(splits.validation(0) + splits.validation(1)) == [f"patient00{number}" for number in (1, 3, 4, 5, 6)]
    for path in data.rglob("*_gt.nii.gz"):
        path.unlink()
    assert main(command) == 0 and "no labels" not in capsys.readouterr().out
    assert len(Splits.load(out).validation(0)) == 3, "a split for pre-training alone"


def test_hospitals_that_are_stored_apart_stay_apart_unless_asked(phantom, tmp_path):
    data, out = tmp_path / "data", tmp_path / "splits.json"
    hospitals = {"site-a": ["patient001", "patient004"], "site-b": ["patient002", "patient003", "patient005"]}
    for site, patients in hospitals.items():
        for patient in patients:
            shutil.copytree(phantom / patient, data / site / patient)
    command = ["data", "split", str(data), "--out", str(out), "--folds", "2", "--force"]
    assert main(command) == 0
    assert Splits.load(out).sites == hospitals
    assert main([*command, "--sites", "1"]) == 0
    assert list(Splits.load(out).sites) == ["site-1"]
    shutil.copytree(phantom / "patient006", data / "patient006")
    assert main(command) == 1, "one patient of no site: six patients are dealt at random, and too few for ten sites"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--sites", "3"], "site-1 has 2 patients, fewer than the 5 folds"),
        (["--sites", "7", "--folds", "2"], "site-7 has no patients"),
        (["--sites", "0"], "0 sites"),
        (["--from", "nowhere.csv"], "nowhere.csv: cannot be read"),
    ],
)
def test_impossible_splits_end_in_one_sentence_and_no_file(phantom, tmp_path, capsys, options, sentence):
    out = tmp_path / "splits.json"
    assert main(["data", "split", str(phantom), "--out", str(out), *options]) == 1
    assert sentence in capsys.readouterr().err and list(tmp_path.iterdir()) == []


def test_help_shows_examples_without_loading_torch():
    code = "import sys; from fclseg.cli import build_parser; build_parser(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
    for command in ("phantom", "check", "split"):
        run = fclseg(command, "--help")
        assert run.returncode == 0 and f"fclseg data {command} " in run.stdout.split("examples:")[1]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_is_one_sentence_and_leaves_nothing_half_written(tmp_path, how):
    command = [Path(sys.executable).with_name("fclseg"), "data", "phantom", "--out", tmp_path / "many"]
    command += ["--patients", "500"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.glob(".many-*/patient001/Info.cfg")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(how)
    _, error = process.communicate()
    assert process.returncode == 130 and error.count("\n") == 1 and error.startswith("fclseg: interrupted")
    assert not list(tmp_path.iterdir())
