"""The committed jobs are exactly what the generator writes, and every class they name exists."""

import importlib
import json
from pathlib import Path

import pytest

from fclseg.engine.job_defaults import DEFAULTS, budget, defaults
from fclseg.flare.jobs import client, files, with_filters
from fclseg.methods.exchange import ROWS
from fclseg.presets import PRESETS
from fclseg.study.cells import FULL
from fclseg.study.federated_finetuning import finetuning_preset

JOBS = Path(__file__).parents[2] / "jobs"


def _committed(job: str) -> dict[str, str]:
    return {str(path.relative_to(JOBS / job)): path.read_text() for path in (JOBS / job).rglob("*") if path.is_file()}


def test_there_is_a_job_for_every_row():
    assert sorted(path.name for path in JOBS.iterdir() if (path / "meta.json").exists()) == sorted(ROWS)


@pytest.mark.parametrize("job", ROWS)
def test_committed_jobs_have_not_drifted(job):
    assert _committed(job) == files(ROWS[job], defaults(ROWS[job])), "run: python -m fclseg.flare.jobs jobs"


def _paths(element) -> list[str]:
    if isinstance(element, dict):
        return ([element["path"]] if "path" in element else []) + [
            p for value in element.values() for p in _paths(value)
        ]
    return [p for value in element for p in _paths(value)] if isinstance(element, list) else []


@pytest.mark.parametrize("job", ["fedbyol", "fclopt", "fclopt_ptnu", "fclopt_dp", "fcl"])
def test_every_component_of_a_job_can_be_imported(job):
    documents = [json.loads(text) for path, text in _committed(job).items() if path.endswith(".json")]
    paths = [path for document in documents for path in _paths(document)]
    assert len(paths) >= 5
    for path in paths:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name)


TASKS = {"fclopt": ["pretrain"], "fclopt_ptnu": ["pretrain"], "fclopt_dp": ["distance", "pretrain"]}


@pytest.mark.parametrize("job", TASKS)
def test_dp_adds_a_task_and_the_engine_needs_no_filters(job):
    documents = {end: json.loads(_committed(job)[f"app/config/config_fed_{end}.json"]) for end in ("server", "client")}
    assert documents["client"]["executors"][0]["tasks"] == TASKS[job]
    assert not any(one[f"task_{kind}_filters"] for one in documents.values() for kind in ("data", "result"))


@pytest.mark.parametrize(("job", "megabytes"), [("fcl", 33.8 + 6.3), ("fclopt_dp", 23.2 + 16.9)])
def test_an_upload_of_the_papers_size_has_time_on_a_slow_link(job, megabytes):
    """At 1 Mbit/s: the largest upload (networks and features, or a calibration) takes this long without overhead."""
    seconds = client(ROWS[job], {**DEFAULTS, "preset": "paper"})["submit_task_result_timeout"]
    assert megabytes * 8 < seconds < megabytes * 8 + 60
    assert 30 < client(ROWS[job], DEFAULTS)["submit_task_result_timeout"] < 40  # small ones are repeated soon


def test_filters_of_the_owner_act_on_what_sites_send():
    noise = {"path": "mine.Noise", "args": {}}
    document = with_filters(client(ROWS["fclopt_dp"], DEFAULTS), [noise])
    assert document["task_result_filters"] == [{"tasks": ["pretrain"], "filters": [noise]}]


def test_a_job_waits_for_as_many_sites_as_its_rounds_need():
    settings = defaults(ROWS["fclopt"])
    texts = files(ROWS["fclopt"], {**settings, "min_sites": 7})
    assert json.loads(texts["meta.json"])["min_clients"] == 7
    assert json.loads(_committed("fclopt")["meta.json"])["min_clients"] == settings["min_sites"] == 1


def test_jobs_carry_no_code_and_none_at_all_to_real_sites():
    for job in ROWS:
        assert not list((JOBS / job).rglob("*.py*"))
        assert not [path for path in files(ROWS[job], defaults(ROWS[job]), simulator=False) if "custom" in path]


@pytest.mark.parametrize("name", PRESETS)
def test_a_labelled_job_has_the_budget_of_fine_tuning(name):
    preset = PRESETS[name]
    wanted = finetuning_preset(preset, FULL, steps_per_epoch=1)
    changes = budget(ROWS["finetune_federated"], preset)
    assert preset.changed(changes) == wanted
    assert changes["pretraining.batch_size"] == preset.finetuning.batch_size
    assert changes["pretraining.rounds"] <= preset.finetuning.rounds


FEDERATED = {"pretraining.rounds": 30, "pretraining.local_epochs": 1, "pretraining.batch_size": 10}


STARTED = ("phantom", "mean_teacher", "mean_teacher_local", "mean_teacher_dp")


def test_only_labelled_jobs_and_those_with_a_start_change_their_preset():
    given = {job: defaults(row).get("changes") for job, row in ROWS.items()}
    adapted = {job: {"pretraining.rounds": 2} for job in STARTED}
    assert given == dict.fromkeys(ROWS) | adapted | {"finetune_federated": FEDERATED}
    assert {job for job, row in ROWS.items() if defaults(row).get("network") == "shipped"} == set(STARTED)
