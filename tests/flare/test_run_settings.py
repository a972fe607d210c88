"""Settings: the job's values, the environment's on the server, and a site's own places."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fclseg.errors import DataError, FCLSegError
from fclseg.flare.settings import SIMULATED_JOB, Place, RunSettings


def test_the_environment_replaces_the_jobs_values():
    given = {"job": "fclopt_dp", "preset": "demo", "seed": 1}
    settings = RunSettings.read(given, {"FCLSEG_PRESET": "small", "FCLSEG_ROUNDS": "7", "FCLSEG_SEED": "5"})
    assert (settings.preset, settings.rounds, settings.seed, settings.run) == ("small", 7, 5, "fclopt_dp-small")
    assert RunSettings.read(given, {"FCLSEG_RUN": "mine"}).run == "mine"
    assert RunSettings.read(given, {}).rounds == 4  # the preset's


def test_settings_survive_the_way_to_a_site():
    settings = RunSettings.read({"job": "fcl", "changes": {"channels": [4, 8]}}, {})
    again = RunSettings(**json.loads(json.dumps(settings.to_dict())))
    assert again == settings and again.build_preset().channels == (4, 8)


@pytest.mark.parametrize(
    ("values", "environment", "complaint"),
    [
        ({"job": "nothing"}, {}, "no job 'nothing'"),
        ({"job": "fclopt", "speed": 3}, {}, "no 'speed'"),
        ({"job": "fclopt", "rounds": 0}, {}, "from 1 on"),
        ({"job": "fclopt", "fraction": 1.5}, {}, "fraction"),
        ({"job": "fclopt"}, {"FCLSEG_ROUNDS": "many"}, "FCLSEG_ROUNDS must be a whole number"),
        ({"job": "fclopt", "changes": {"depth": 3}}, {}, "'depth'"),
        ({"job": "fclopt", "run": "../../elsewhere"}, {}, "cannot name a run"),
        ({"job": "fclopt"}, {"FCLSEG_RUN": ".."}, "cannot name a run"),
    ],
)
def test_wrong_settings_are_one_sentence(values, environment, complaint):
    with pytest.raises(FCLSegError, match=complaint):
        RunSettings.read(values, environment)


def test_a_real_site_reads_its_own_file_first(tmp_path, monkeypatch):
    monkeypatch.setenv("FCLSEG_DATA", str(tmp_path))
    place = Place("site-1", tmp_path, "job-4711")
    assert place.data == tmp_path and place.runs == tmp_path / "runs" and place.threads == 1
    (tmp_path / "local").mkdir()
    (tmp_path / "own").mkdir()
    own = tmp_path / "local" / "fclseg.json"
    own.write_text(json.dumps({"data": str(tmp_path / "own"), "threads": 4, "runs": "/elsewhere"}))
    assert (place.data, place.threads, place.runs) == (tmp_path / "own", 4, Path("/elsewhere"))
    assert replace(place, job_id=SIMULATED_JOB).data == tmp_path  # simulated sites have no file of their own
    own.write_text(json.dumps({"threads": 0}))
    with pytest.raises(FCLSegError, match="cannot train with '0' threads"):
        _ = place.threads
    own.write_text("data = /folder")
    with pytest.raises(FCLSegError, match=r"fclseg\.json is not a JSON object"):
        _ = place.data


def test_a_data_folder_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FCLSEG_DATA", str(tmp_path / "missing"))
    with pytest.raises(DataError, match=r"missing of site-1 does not exist"):
        _ = Place("site-1", tmp_path, "job").data
