"""Fine-tuning and scores with label maps in which only some slices are labelled."""

import shutil

import nibabel as nib
import numpy as np
import pytest

from fclseg.anatomy.folders import read_folder
from fclseg.data.preprocess import UNLABELLED
from fclseg.finetune.dataset import Patients, open_labelled
from fclseg.finetune.evaluation import where_labelled
from fclseg.finetune.train import FinetuneSpec
from fclseg.finetune.unlabelled import unlabelled_slices
from fclseg.phantom.dataset import write_phantom
from fclseg.study.fixed_training import train_fixed

KEPT = 3


@pytest.fixture(scope="module")
def partly(tmp_path_factory):
    """Two patients with one labelled slice in each label map."""
    folder = tmp_path_factory.mktemp("partly") / "acdc"
    write_phantom(folder, "acdc", patients=2, seed=6, frames=2)
    for path in folder.rglob("*_gt.nii.gz"):
        image = nib.load(path)
        labels = np.asarray(image.dataobj).astype(np.uint8)
        labels[:, :, np.arange(labels.shape[2]) != KEPT] = UNLABELLED
        nib.save(nib.Nifti1Image(labels, image.affine, image.header), path)
    return folder


def test_only_labelled_pixels_are_scored():
    prediction, truth = np.array([[[1, 2], [3, 1]], [[1, 1], [0, 3]]]), np.array([[[1, 0], [3, 3]], [[255] * 2] * 2])
    found = where_labelled(prediction, truth)
    assert found[0].tolist() == [[[1, 2], [3, 1]], [[0, 0], [0, 0]]]
    assert found[1].tolist() == [[[1, 0], [3, 3]], [[0, 0], [0, 0]]]


def test_a_folder_of_single_slices_trains_and_scores(partly, tmp_path):
    spec = FinetuneSpec(
        partly, ("patient001",), ("patient002",), preset="demo", overrides={"epochs": 1, "original_grid": True}
    )
    result = train_fixed(spec, tmp_path)
    assert len(result.evaluation.rows) == 2 and np.isfinite(result.evaluation.mean_dice)
    assert all(row["ml_LV"] is None for row in result.evaluation.rows)  # a volume of one slice is no volume
    assert result.evaluation.agreement == {}


def test_the_other_slices_can_be_used_without_their_labels(partly):
    store = open_labelled(str(partly), read_folder(partly)[0].anatomy, 32, 5.0, progress=False)
    found = unlabelled_slices(store, partly, Patients(("patient001",), ("patient002",)), None, 4)
    depths = [np.asarray(nib.load(path).dataobj).shape[2] for path in (partly / "patient001").glob("*_gt.nii.gz")]
    assert len(found) == sum(depths) - len(depths)
    assert {found.store.volumes[volume].patient for volume in found.store.volume[found.indices]} == {"patient001"}
    assert all((np.asarray(found.store.labels[row]) == UNLABELLED).all() for row in found.indices)


def test_labels_made_meanwhile_are_seen(partly, tmp_path):
    """In one process, as in a notebook: train, label more, train again."""
    folder = tmp_path / "acdc"
    shutil.copytree(partly, folder)
    anatomy = read_folder(folder)[0].anatomy
    before = open_labelled(str(folder), anatomy, 32, 5.0, progress=False)
    assert open_labelled(str(folder), anatomy, 32, 5.0, progress=False) is before
    path = sorted(folder.rglob("*_gt.nii.gz"))[0]
    image = nib.load(path)
    labels = np.array(image.dataobj)
    labels[:, :, KEPT + 1] = 0
    nib.save(nib.Nifti1Image(labels, image.affine, image.header), path)
    after = open_labelled(str(folder), anatomy, 32, 5.0, progress=False)
    assert len(after.select(labelled=True)) == len(before.select(labelled=True)) + 1
