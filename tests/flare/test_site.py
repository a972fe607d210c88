"""A site in a run: what it builds, and where."""

import json

import nibabel as nib
import numpy as np
import pytest
import torch

from fclseg.data.place import AroundLabels
from fclseg.engine.place import LOCAL_FILE, Place
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.site import Site
from fclseg.errors import DataError
from fclseg.phantom.dataset import write_phantom


@pytest.fixture
def site(tmp_path):
    write_phantom(tmp_path / "data", patients=1, frames=2)
    (tmp_path / LOCAL_FILE).parent.mkdir()
    (tmp_path / LOCAL_FILE).write_text(json.dumps({"data": str(tmp_path / "data"), "cache": str(tmp_path / "cache")}))
    settings = RunSettings.read({"job": "fedu", "changes": {"channels": [2, 4], "hidden": 4}}, {})
    return Site(Place("site-1", tmp_path, "job"), settings, "run-1", ["site-1"])


def test_method_and_images_go_to_the_sites_device_and_the_initial_weights_do_not(site, monkeypatch):
    """On torch's device without data, which every machine has."""
    monkeypatch.setattr("fclseg.engine.place.choose_device", lambda name: torch.device("meta"))
    assert {tensor.device.type for tensor in site.method.state_dict().values()} == {"meta"}
    batch = next(site.sampler.epoch(torch.Generator()))
    assert batch.images.device.type == batch.partners.device.type == batch.partitions.device.type == "meta"
    assert {type(array) for array in site.target(0, {}).values()} == {np.ndarray}


@pytest.mark.parametrize(
    ("job", "around"),
    [("finetune_federated", True), ("finetune_federated", False), ("fedu", True), ("mean_teacher", True)],
)
def test_networks_that_segment_see_windows_around_the_heart_if_the_preset_says_so(
    tmp_path, site, job, around, monkeypatch
):
    """Slices of contrastive pre-training show the middle of the image. The mean teacher uses no labels, so its windows
    are where the shipped network finds the heart."""
    if job == "mean_teacher":
        monkeypatch.delattr(AroundLabels, "__call__")
    changes = {"channels": [2, 4], "hidden": 4, "images.windows": around}
    one = Site(
        Place("site-1", tmp_path, "job"), RunSettings.read({"job": job, "changes": changes}, {}), "r", ["site-1"]
    )
    labels = one.sampler.store.labels
    centre = np.argwhere((labels > 0) & (labels < 4))[:, 1:].mean(axis=0)
    middle = (np.array(labels.shape[1:]) - 1) / 2
    off = {"finetune_federated": 1, "mean_teacher": 3}
    assert (np.abs(centre - middle).max() < off.get(job, 1)) == (around and job in off), (
        "this patient's heart is not in the middle of the image"
    )


def test_a_plain_folder_with_labels_that_the_run_does_not_know_is_refused(tmp_path):
    """Without labels.json, nothing else says what the values of a label map mean."""
    folder = tmp_path / "data"
    folder.mkdir()
    voxels = np.random.default_rng(0).integers(0, 99, (16, 16, 3)).astype(np.int16)
    labels = np.zeros_like(voxels)
    labels[4:8, 4:8] = 7
    for name, array in (("a.nii.gz", voxels), ("a_gt.nii.gz", labels)):
        nib.save(nib.Nifti1Image(array, np.diag([-1.5, -1.5, 8, 1])), folder / name)
    (tmp_path / LOCAL_FILE).parent.mkdir()
    (tmp_path / LOCAL_FILE).write_text(json.dumps({"data": str(folder), "cache": str(tmp_path / "cache")}))
    settings = RunSettings.read({"job": "finetune_federated", "changes": {"channels": [2, 4], "hidden": 4}}, {})
    site = Site(Place("site-1", tmp_path, "job"), settings, "run-1", ["site-1"])
    with pytest.raises(DataError, match="site-1 has the label 7, but this run segments 1 RV"):
        _ = site.sampler
