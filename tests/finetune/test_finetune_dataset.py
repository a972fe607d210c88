"""The choice of patients, and the batches of an epoch."""

import nibabel as nib
import numpy as np
import pytest
import torch

from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.augment import RANGES, WINDOWS
from fclseg.data.sites import Splits
from fclseg.errors import DataError
from fclseg.finetune.dataset import LabelledBatches, choose_patients, open_labelled, training_slices
from fclseg.finetune.train import FinetuneSpec, training_config

NAMES = [f"patient{number:03d}" for number in range(1, 5)]


@pytest.fixture(scope="module")
def store(phantom):
    return open_labelled(str(phantom), ANATOMIES["acdc"], 32, 5.0, progress=False)


def test_store_holds_labelled_volumes_only_and_is_opened_once(store, phantom):
    assert all(volume.labelled for volume in store.volumes) and len(store.volumes) == 8
    assert open_labelled(str(phantom), ANATOMIES["acdc"], 32, 5.0, progress=False) is store


def test_a_quarter_is_held_out_by_seed(store):
    draws = [choose_patients(store, seed=seed) for seed in range(12)]
    for patients in draws:
        assert len(patients.validation) == 1 and sorted(patients.train + patients.validation) == NAMES
    assert len({patients.validation for patients in draws}) > 1
    assert choose_patients(store, seed=3) == draws[3]
    assert len(choose_patients(store, seed=3, labels=2).train) == 2


def test_names_win_and_the_rest_is_held_out(store):
    patients = choose_patients(store, train_patients="patient002")
    assert patients.train == ("patient002",) and patients.validation == ("patient001", "patient003", "patient004")
    assert choose_patients(store, train_patients=[], validation_patients=None).validation == tuple(NAMES)


def test_splits_file(store, tmp_path):
    splits = Splits.make(NAMES, 2, folds=2, seed=0)
    splits.save(tmp_path / "splits.json")
    one = choose_patients(store, splits=str(tmp_path / "splits.json"), site="site-1", fold=1)
    assert list(one.train) == splits.training("site-1", 1)
    assert sorted(one.validation) == sorted(splits.validation(1)) and len(one.validation) == 2
    pooled = choose_patients(store, splits=str(tmp_path / "splits.json"), fold=1, labels=1)
    assert len(pooled.train) == 2 and not set(pooled.train) & set(pooled.validation)


@pytest.mark.parametrize(
    "wish", [{"train_patients": ["nobody"]}, {"train_patients": NAMES[:2], "validation_patients": NAMES[1:3]}]
)
def test_impossible_wishes_are_refused(store, wish):
    with pytest.raises(DataError, match="patient"):
        choose_patients(store, **wish)


def test_epochs_replay_and_differ_from_each_other(store):
    loaders = [LabelledBatches(training_slices(store, NAMES[:2], 6), seed=4) for _ in range(2)]
    first, again = (list(loader) for loader in loaders)
    assert len(first) == len(loaders[0]) == len(store.select(patients=NAMES[:2])) // 6
    for mine, theirs in zip(first, again, strict=True):
        assert torch.equal(mine["image"], theirs["image"]) and torch.equal(mine["label"], theirs["label"])
        assert mine["image"].shape == mine["label"].shape == (6, 1, 32, 32)
        assert set(np.unique(mine["label"])) <= {0, 1, 2, 3}
    assert not torch.equal(next(iter(loaders[0]))["image"], first[0]["image"])
    loaders[1].epoch = 0
    assert torch.equal(next(iter(loaders[1]))["image"], first[0]["image"])


def test_a_label_that_the_bundle_does_not_know_is_named(tmp_path):
    image = np.random.default_rng(0).integers(0, 99, (8, 8, 2), dtype=np.int16)
    nib.save(nib.Nifti1Image(image, np.eye(4)), tmp_path / "a.nii.gz")
    nib.save(nib.Nifti1Image((image > 50).astype(np.uint8) * 7, np.eye(4)), tmp_path / "a_gt.nii.gz")
    with pytest.raises(DataError, match="contains the label 7, but this bundle knows only 1 RV, 2 MYO, 3 LV"):
        open_labelled(str(tmp_path), ANATOMIES["acdc"], 8, 1.0, progress=False)


@pytest.mark.parametrize(("preset", "around"), [("standard", True), ("small", False)])
def test_the_bundle_trains_the_standard_network_on_windows_around_the_heart(phantom, preset, around):
    spec = FinetuneSpec(phantom, ("patient001",), (), preset=preset)
    config = training_config(spec, None, progress=False)
    assert config.get_parsed_content("train#dataloader").ranges == (WINDOWS if around else RANGES)
    labels = config.get_parsed_content("store").labels
    centre = np.argwhere((labels > 0) & (labels < 4))[:, 1:].mean(axis=0)
    assert (np.abs(centre - (labels.shape[1] - 1) / 2).max() < 1) == around
