"""Settings: the job's values, environment variables on the server, and a site's own folders."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fclseg.data.slices import default_cache
from fclseg.engine.place import Place
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.site import Site
from fclseg.errors import DataError, FCLSegError
from fclseg.phantom.dataset import write_phantom


def test_the_environment_replaces_the_jobs_values():
    given = {"job": "fclopt_dp", "preset": "demo", "seed": 1}
    settings = RunSettings.read(given, {"FCLSEG_PRESET": "small", "FCLSEG_ROUNDS": "7", "FCLSEG_SEED": "5"})
    assert (settings.preset, settings.rounds, settings.seed, settings.run) == ("small", 7, 5, "fclopt_dp-small")
    assert RunSettings.read(given, {"FCLSEG_RUN": "mine"}).run == "mine"
    assert RunSettings.read(given, {}).rounds == 4  # the preset's


def test_settings_survive_the_way_to_a_site():
    settings = RunSettings.read({"job": "fcl", "changes": {"channels": [4, 8]}}, {})
    again = RunSettings(**json.loads(json.dumps(settings.to_dict())))
    assert again == settings and again.build_preset().networks.channels == (4, 8)


@pytest.mark.parametrize(
    ("values", "environment", "complaint"),
    [
        ({"job": "nothing"}, {}, "no job 'nothing'"),
        ({"job": "fclopt", "speed": 3}, {}, "unknown setting 'speed'"),
        ({"job": "fclopt", "rounds": 0}, {}, "at least 1"),
        ({"job": "fclopt", "fraction": 1.5}, {}, "fraction"),
        ({"job": "fclopt"}, {"FCLSEG_ROUNDS": "many"}, "FCLSEG_ROUNDS must be a whole number"),
        ({"job": "fclopt", "changes": {"depth": 3}}, {}, "'depth'"),
        ({"job": "fclopt", "run": "../../elsewhere"}, {}, "is not a valid run name"),
        ({"job": "fclopt"}, {"FCLSEG_RUN": ".."}, "is not a valid run name"),
        ({}, {}, "no job 'None'"),
        ({"job": ["fclopt"]}, {}, "'job' cannot be .*give a text"),
        ({"job": "fclopt", "run": 7}, {}, "'run' cannot be 7: give a text"),
        ({"job": "fclopt", "seed": None}, {}, "'seed' cannot be None: give a whole number"),
        ({"job": "fclopt", "min_sites": "2"}, {}, "'min_sites' cannot be '2': give a whole number of at least 1"),
        ({"job": "fclopt", "min_sites": 0}, {}, "'min_sites' cannot be 0"),
        ({"job": "fclopt", "pretrain_timeout": 0}, {}, "'pretrain_timeout' cannot be 0: give .* at least 1"),
        ({"job": "fclopt", "distance_timeout": "1h"}, {}, "'distance_timeout' cannot be '1h'"),
        ({"job": "fclopt", "pickup_timeout": -1}, {}, "'pickup_timeout' cannot be -1: give .* at least 0"),
        ({"job": "fclopt", "fold": -1}, {}, "'fold' cannot be -1"),
        ({"job": "fclopt", "fraction": "half"}, {}, "'fraction' cannot be 'half': give a number"),
        ({"job": "fclopt", "changes": ["rounds"]}, {}, "'changes' cannot be"),
        ({"job": "fclopt", "encoder": "e.safetensors"}, {}, "no whole network and takes no 'encoder'"),
        (
            {"job": "motion", "encoder": "e", "network": "n"},
            {},
            "from an encoder or from a whole network, not from both",
        ),
        ({"job": "local_cl", "labels": 4}, {}, "without labels and takes no 'labels'"),
        ({"job": "finetune_federated", "labels": 0}, {}, "'labels' cannot be 0"),
        ({"job": "mean_teacher_local", "network": "/etc/passwd"}, {}, "can only start from their own installation"),
        ({"job": "mean_teacher_local", "encoder": "e.safetensors"}, {}, "can only start from their own installation"),
    ],
)
def test_wrong_settings_are_one_sentence(values, environment, complaint):
    with pytest.raises(FCLSegError, match=complaint):
        RunSettings.read(values, environment)


def test_what_a_method_can_use_is_taken():
    assert RunSettings.read({"job": "mean_teacher_local", "network": "shipped"}, {}).network == "shipped"
    labelled = {"job": "finetune_federated", "labels": 4, "encoder": "e.safetensors", "fold": 0, "fraction": 1}
    assert RunSettings.read(labelled, {}).labels == 4


def test_names_that_nvflare_cut_at_the_dots_are_whole_again():
    cut = {"images": {"size": 32, "view_size": 16}, "pretraining": {"batch_size": 8}, "hidden": 4}
    whole = {"images.size": 32, "images.view_size": 16, "pretraining.batch_size": 8, "networks.hidden": 4}
    assert RunSettings.read({"job": "fcl", "changes": cut}, {}).changes == whole


@pytest.mark.parametrize(
    ("settings", "why"), [({"labels": 4}, "to choose labelled patients"), ({"fold": 2}, "to leave out fold 2")]
)
def test_a_site_without_splits_says_what_they_are_for(settings, why, tmp_path, monkeypatch):
    write_phantom(tmp_path / "data", patients=1, frames=2)
    monkeypatch.setenv("FCLSEG_DATA", str(tmp_path / "data"))
    chosen = RunSettings.read({"job": "finetune_federated", **settings}, {})
    with pytest.raises(DataError, match=f"site-1 needs a splits file {why}: set FCLSEG_SPLITS"):
        _ = Site(Place("site-1", tmp_path, "job"), chosen, "run-1", ["site-1"]).sampler


@pytest.mark.parametrize(("anatomy", "fits"), [("acdc", True), ("hvsmr", False)])
def test_labels_of_other_structures_stay_out_of_the_mean(anatomy, fits, tmp_path, monkeypatch):
    write_phantom(tmp_path / "data", anatomy, patients=2, frames=2)
    for name in ("data", "cache"):
        monkeypatch.setenv(f"FCLSEG_{name.upper()}", str(tmp_path / name))
    site = Site(Place("site-1", tmp_path, "job"), RunSettings.read({"job": "finetune_federated"}, {}), "id", ["site-1"])
    if fits:
        assert len(site.sampler) > 0
    else:
        with pytest.raises(DataError, match="the labels 1 MYO, 2 BP, but this run segments 1 RV, 2 MYO, 3 LV"):
            _ = site.sampler


def test_a_real_site_reads_its_own_file_first(tmp_path, monkeypatch):
    monkeypatch.setenv("FCLSEG_DATA", str(tmp_path))
    place = Place("site-1", tmp_path, "job-4711")
    assert place.data == tmp_path and place.runs == tmp_path / "runs" and place.threads == 1
    (tmp_path / "local").mkdir()
    (tmp_path / "own").mkdir()
    own = tmp_path / "local" / "fclseg.json"
    own.write_text(json.dumps({"data": str(tmp_path / "own"), "threads": 4, "runs": "/elsewhere"}))
    assert (place.data, place.threads, place.runs) == (tmp_path / "own", 4, Path("/elsewhere"))
    assert replace(place, simulated=True).data == tmp_path  # simulated sites have no file of their own
    own.write_text(json.dumps({"device": "abacus"}))
    with pytest.raises(FCLSegError, match="no device 'abacus'"):
        _ = place.device
    own.write_text(json.dumps({"threads": 0}))
    with pytest.raises(FCLSegError, match="cannot train with '0' threads"):
        _ = place.threads
    own.write_text("data = /folder")
    with pytest.raises(FCLSegError, match=r'fclseg\.json is not a JSON object.*{"data": "/folder"}'):
        _ = place.data
    own.unlink()
    own.mkdir()  # stands for any file that cannot be read, even if the tests run as root
    with pytest.raises(FCLSegError, match=r"fclseg\.json cannot be read \(Is a directory\)"):
        _ = place.data


def test_there_is_one_default_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FCLSEG_CACHE", raising=False)
    place = Place("site-1", tmp_path, "job")
    assert place.cache == default_cache() == tmp_path / ".cache" / "fclseg"
    monkeypatch.setenv("FCLSEG_CACHE", "~/elsewhere")
    assert place.cache == default_cache() == tmp_path / "elsewhere"


def test_a_site_trains_on_the_device_it_names(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    place = Place("site-1", tmp_path, "job")
    assert place.device == torch.device("cuda:0")
    monkeypatch.setenv("FCLSEG_DEVICE", "cpu")
    assert place.device == torch.device("cpu")


def test_a_data_folder_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FCLSEG_DATA", str(tmp_path / "missing"))
    with pytest.raises(DataError, match=r"missing of site-1 does not exist"):
        _ = Place("site-1", tmp_path, "job").data
