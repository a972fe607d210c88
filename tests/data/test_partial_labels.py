"""Label maps in which only some slices are labelled (255 elsewhere)."""

import shutil

import nibabel as nib
import numpy as np
import pytest
import torch

from fclseg.anatomy.folders import read_folder
from fclseg.cli import main
from fclseg.data.check import check_folder
from fclseg.data.preprocess import UNLABELLED
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import open_store
from fclseg.errors import DataError
from fclseg.phantom.dataset import write_phantom

KEPT = {"patient001": (2, 5), "patient002": (0,)}
"""The labelled slices of each patient's first labelled frame, in the order of the file. Other frames keep all."""


@pytest.fixture(scope="module")
def partly(tmp_path_factory):
    folder = tmp_path_factory.mktemp("partly") / "acdc"
    write_phantom(folder, "acdc", patients=2, seed=5, frames=2)
    for patient, kept in KEPT.items():
        path = sorted((folder / patient).glob("*_gt.nii.gz"))[0]
        image = nib.load(path)
        labels = np.asarray(image.dataobj).astype(np.uint8)
        away = [number for number in range(labels.shape[2]) if number not in kept]
        labels[:, :, away] = UNLABELLED
        nib.save(nib.Nifti1Image(labels, image.affine, image.header), path)
    return folder


def labelled_in_files(folder):
    """For every label map, by (patient, frame): which slices have a label. Phantoms are stored in our axis order."""
    found = {}
    for volume in read_folder(folder):
        if volume.label:
            stored = np.asarray(nib.load(volume.label).dataobj)
            found[volume.patient, volume.frame] = [bool((stored[:, :, s] != 255).any()) for s in range(stored.shape[2])]
    return found


def test_the_store_selects_single_slices(partly, tmp_path):
    volumes = [volume for volume in read_folder(partly) if volume.label]
    # A canvas larger than the image: padding must not turn an unlabelled slice into background.
    store = open_store(volumes, image_size=160, spacing=3.0, cache=tmp_path, progress=False)
    expected = labelled_in_files(partly)
    chosen, others = set(store.select(labelled=True).tolist()), set(store.select(labelled=False).tolist())
    assert chosen.isdisjoint(others) and len(chosen | others) == len(store)
    for volume in store.volumes:
        for number, is_labelled in enumerate(expected[volume.patient, volume.frame]):
            row = volume.start + number
            assert (row in chosen) == is_labelled
            assert (store.labels[row] == UNLABELLED).any() == (not is_labelled)
            assert (store.labels[row] == UNLABELLED).all() == (not is_labelled)
    assert sum(map(sum, expected.values())) == len(chosen) < len(store)


def test_training_sees_only_labelled_slices(partly, tmp_path):
    volumes = [volume for volume in read_folder(partly) if volume.label]
    store = open_store(volumes, image_size=64, spacing=3.0, cache=tmp_path, progress=False)
    sampler = SliceSampler(store, store.select(labelled=True), 4, labels=True)
    for batch in sampler.epoch(torch.Generator().manual_seed(1)):
        assert int(batch.label_maps.max()) <= 3
    with pytest.raises(DataError, match="labelled=True"):
        SliceSampler(store, store.select(), 4, labels=True)


def test_the_check_counts_slices(partly, capsys):
    expected = labelled_in_files(partly)
    report = check_folder(partly)
    assert report.problems == []
    for row in report.patients:
        mine = [slices for (patient, _), slices in expected.items() if patient == row.patient]
        assert (row.slices, row.without) == (sum(map(sum, mine)), sum(len(one) - sum(one) for one in mine))
    assert main(["data", "check", str(partly)]) == 0
    total = sum(map(sum, expected.values()))
    assert f"partly labelled: {total} labelled slices" in capsys.readouterr().out


def test_a_map_without_any_label_is_a_problem(partly, tmp_path):
    folder = tmp_path / "acdc"
    shutil.copytree(partly, folder)
    path = sorted((folder / "patient001").glob("*_gt.nii.gz"))[0]
    image = nib.load(path)
    nib.save(nib.Nifti1Image(np.full(image.shape, 255, np.uint8), image.affine, image.header), path)
    (problem,) = check_folder(folder).problems
    assert str(path) in problem and "nothing is labelled in it" in problem
