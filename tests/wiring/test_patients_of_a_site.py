"""Which patients a site trains on, read from its training batches and compared with the split file."""

import json

import numpy as np
import pytest

from fclseg.engine.place import LOCAL_FILE, Place
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.site import Site

SPLIT = {
    "format": 1,
    "seed": 0,
    "sites": {
        "site-1": {
            "patients": ["patient001", "patient002", "patient003"],
            "folds": [["patient001"], ["patient002"], ["patient003"]],
        },
        "site-2": {
            "patients": ["patient004", "patient005", "patient006"],
            "folds": [["patient005"], ["patient006"], ["patient004"]],
        },
    },
}
TINY = {"channels": [2, 4], "hidden": 4}


@pytest.fixture
def splits(tmp_path):
    path = tmp_path / "splits.json"
    path.write_text(json.dumps(SPLIT))
    return path


def make_site(kind, name, data, splits, workspace, job="fedbyol", **settings):
    """A simulated site, which shares its folder with others, or a real one with a local settings file."""
    places = {"data": str(data), "splits": splits and str(splits)}
    if kind == "simulated":
        place = Place(name, workspace, simulated=True, shared=places)
    else:
        (workspace / LOCAL_FILE).parent.mkdir(exist_ok=True)
        (workspace / LOCAL_FILE).write_text(json.dumps(places))
        place = Place(name, workspace)
    run = RunSettings.read({"job": job, "changes": TINY, **settings}, {})
    return Site(place, run, "run", ["site-1", "site-2"])


def frames_of(site):
    """{patient: frames} of the slices that the sampler has."""
    sampler, found = site.sampler, {}
    for index in np.unique(sampler.store.volume[sampler.indices]):
        volume = sampler.store.volumes[index]
        found.setdefault(volume.patient, []).append(volume.labelled)
    return found


@pytest.mark.parametrize("kind", ["simulated", "real"])
@pytest.mark.parametrize(
    ("name", "fold", "expected"),
    [
        ("site-1", 0, {"patient002", "patient003"}),
        ("site-2", 0, {"patient004", "patient006"}),
        ("site-2", 2, {"patient005", "patient006"}),
        ("site-2", None, {"patient004", "patient005", "patient006"}),
    ],
)
def test_a_fold_keeps_its_held_out_patients_from_pretraining(
    shared_folder, splits, tmp_path, kind, name, fold, expected
):
    frames = frames_of(make_site(kind, name, shared_folder, splits, tmp_path, fold=fold))
    assert set(frames) == expected
    for labelled in frames.values():  # every frame of the cycle, with labels or without
        assert sorted(labelled) == [False, False, True, True]


def test_sites_of_a_simulation_share_no_patient_and_leave_out_none(shared_folder, tmp_path):
    sites = [make_site("simulated", name, shared_folder, None, tmp_path) for name in ("site-1", "site-2")]
    first, second = (set(frames_of(site)) for site in sites)
    assert not first & second and first | second == {f"patient{number:03d}" for number in range(1, 7)}


def test_a_real_site_takes_everybody_in_its_folder(shared_folder, tmp_path):
    assert len(frames_of(make_site("real", "site-1", shared_folder, None, tmp_path))) == 6


@pytest.mark.parametrize("fold", [0, 1])
def test_federated_fine_tuning_sees_n_labelled_patients_that_the_fold_does_not_hold_out(
    shared_folder, splits, tmp_path, fold
):
    site = make_site("simulated", "site-2", shared_folder, splits, tmp_path, "finetune_federated", fold=fold, labels=1)
    frames = frames_of(site)
    assert len(frames) == 1 and list(frames.values()) == [[True, True]]
    entry = SPLIT["sites"]["site-2"]
    assert set(frames) < set(entry["patients"]) - set(entry["folds"][fold])


def test_slices_have_the_pixel_size_of_anatomy_and_preset(shared_folder, tmp_path):
    store = make_site("real", "site-1", shared_folder, None, tmp_path).sampler.store
    assert (store.image_size, store.spacing) == (48, 1.25 * 3.0)
