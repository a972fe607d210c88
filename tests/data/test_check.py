"""``check_folder`` reads every voxel and lists every problem once."""

import shutil

import numpy as np

from fclseg.data.check import check_folder
from fclseg.data.sites import Splits


def test_healthy_folder(tmp_path, add_patient):
    add_patient(tmp_path, "patient001", frames=4)
    add_patient(tmp_path, "patient002")
    report = check_folder(tmp_path)
    assert report.problems == [] and report.anatomy.name == "acdc"
    assert (report.labelled, report.unlabelled) == (4, 2)
    first = report.patients[0]
    assert (first.patient, first.labelled, first.unlabelled) == ("patient001", 2, 2)
    assert first.grids == {(24, 20, 6)} and first.spacings == {(1.5, 1.5, 8.0)}


def test_each_frame_of_a_cycle_is_read_and_a_broken_file_is_one_problem(tmp_path, add_patient, save_nifti):
    folder = add_patient(tmp_path, "patient001", frames=6)
    cycle = np.random.default_rng(0).uniform(0, 1, (24, 20, 6, 6)).astype(np.float32)
    cycle[12, 10, 3, 1] = np.nan  # in the middle; at the border it would count as padding
    cycle[..., 4] = 2.0
    path = save_nifti(folder / "patient001_4d.nii.gz", cycle)
    first, second = check_folder(tmp_path).problems
    assert f"{path} frame 2: the image contains NaN" in first and f"{path} frame 5: the image is constant" in second
    path.write_bytes(path.read_bytes()[:-100])
    (problem,) = check_folder(tmp_path).problems
    assert str(path) in problem and "truncated" in problem


def test_a_problem_that_two_checks_see_is_listed_once(tmp_path, add_patient):
    path = add_patient(tmp_path, "patient001") / "patient001_frame01_gt.nii.gz"
    path.write_text("not gzip")
    (problem,) = check_folder(tmp_path).problems
    assert f"{path}: is not a gzip file" in problem


def test_one_patient_under_two_names(tmp_path, add_patient):
    folder = add_patient(tmp_path, "patient001")
    copy = tmp_path / "patient002"
    shutil.copytree(folder, copy)
    for path in list(copy.glob("*.nii.gz")):
        path.rename(copy / path.name.replace("patient001", "patient002"))
    problems = check_folder(tmp_path).problems
    assert len(problems) == 2
    assert all("patient002" in problem and "is the same image as" in problem for problem in problems)


def test_splits_are_checked_against_the_folder(tmp_path, add_patient):
    data = tmp_path / "data"
    for number in range(1, 5):
        add_patient(data, f"patient{number:03d}")
    path = tmp_path / "splits.json"
    Splits.make([f"patient{number:03d}" for number in range(1, 5)], 2, folds=2).save(path)
    assert check_folder(data, splits=path).problems == []
    shutil.rmtree(data / "patient004")
    (problem,) = check_folder(data, splits=path).problems
    assert "splits.json: patient patient004 is not in the data" in problem
