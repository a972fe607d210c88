"""The images of a study: which patients take part in what, and when a stored result may be reused."""

import nibabel as nib
import numpy as np
import pytest

from fclseg.data.sites import Splits
from fclseg.errors import DataError
from fclseg.study.datasets import prepare_dataset


def scan(folder, name, value=1, labelled=True):
    """A small image of its own, with or without a label map, not compressed."""
    folder.mkdir(parents=True, exist_ok=True)
    image = np.random.default_rng(len(name)).normal(size=(8, 8, 4)).astype(np.float32)
    nib.save(nib.Nifti1Image(image, np.eye(4)), folder / f"{name}.nii")
    if labelled:
        nib.save(nib.Nifti1Image(np.full((8, 8, 4), value, np.uint8), np.eye(4)), folder / f"{name}_label.nii")


@pytest.fixture
def hospital(tmp_path):
    """Eight labelled patients and five unlabelled scans."""
    for number in range(8):
        scan(tmp_path / "data", f"p{number}")
    for number in range(5):
        scan(tmp_path / "data", f"scan{number}", labelled=False)
    return tmp_path / "data"


def test_a_plain_folder_has_the_labels_of_the_acdc_bundle(hospital, tmp_path):
    assert prepare_dataset(hospital, tmp_path, sites=1).anatomy.name == "acdc"


def test_patients_without_labels_are_pretrained_on_and_never_scored(hospital, tmp_path):
    splits = Splits.load(prepare_dataset(hospital, tmp_path, sites=2).splits)
    assert len(splits.patients) == 13
    assert splits.folds == 4, "as many folds as a site has labelled patients, five at most"
    scored = {patient for fold in range(splits.folds) for patient in splits.validation(fold)}
    assert scored == {f"p{number}" for number in range(8)}
    with pytest.raises(DataError, match="site-4 has 1 labelled patient, fewer than the 2 folds"):
        prepare_dataset(hospital, tmp_path, sites=5)


def test_a_split_that_validates_on_a_patient_without_labels_is_refused(hospital, tmp_path):
    file = tmp_path / "own.json"
    Splits.make([f"p{number}" for number in range(8)] + ["scan0"], 1, folds=3).save(file)
    with pytest.raises(DataError, match=r"patient scan0 has no labels, but a fold of .*own\.json holds it out"):
        prepare_dataset(hospital, tmp_path, sites=1, splits=file)


def test_new_patients_and_another_folder_of_the_same_name_get_their_own_split(hospital, tmp_path):
    first = prepare_dataset(hospital, tmp_path, sites=2)
    assert prepare_dataset(hospital, tmp_path, sites=2) == first
    scan(hospital, "p8")
    second = prepare_dataset(hospital, tmp_path, sites=2)
    assert "p8" in Splits.load(second.splits).patients and second.fingerprint != first.fingerprint
    for number in range(4):
        scan(tmp_path / "elsewhere" / "data", f"q{number}")
    assert len(Splits.load(prepare_dataset(tmp_path / "elsewhere" / "data", tmp_path, sites=2).splits).patients) == 4


def test_one_corrected_voxel_is_other_data(hospital, tmp_path):
    before = prepare_dataset(hospital, tmp_path, sites=2).fingerprint
    path = hospital / "p3_label.nii"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert prepare_dataset(hospital, tmp_path, sites=2).fingerprint != before
