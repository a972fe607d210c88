"""A cell's key depends on everything that determines its result, and on nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest
from study_cells import DATA, finetuning, pretraining

from fclseg.anatomy.registry import ANATOMIES
from fclseg.presets import SETTINGS, get_preset
from fclseg.study.cache import Cache
from fclseg.study.cells import Dataset, Finetuning, Pretraining

CHANGED = {
    "protocol": "centralised",
    "labels": 2,
    "site": "site-2",
    "fold": 1,
    "seed": 1,
    "mode": "frozen",
    "data": replace(DATA, fingerprint="other"),
    "pretraining": pretraining(),
    "preset": get_preset("demo", finetune_lr=1.0),
}


@pytest.mark.parametrize("name", CHANGED)
def test_whatever_determines_a_fine_tuning_is_in_its_key(name):
    assert replace(finetuning(), **{name: CHANGED[name]}).key != finetuning().key


def test_places_and_pretraining_settings_do_not_change_a_random_fine_tuning():
    moved = Dataset(Path("/elsewhere"), ANATOMIES["acdc"], Path("/elsewhere/splits.json"), DATA.fingerprint)
    assert finetuning(data=moved).key == finetuning().key
    assert finetuning(preset=get_preset("demo", rounds=99, bank_size=7)).key == finetuning().key
    assert finetuning(job="named differently").key == finetuning().key, "the encoder counts, not the row's name"


def test_only_the_stored_results_of_a_redefined_job_are_stale(monkeypatch):
    keys = {job: replace(pretraining(), job=job).key for job in ("fedca", "fcl", "fclopt")}
    monkeypatch.setattr("fclseg.study.cells.REDEFINED", {})
    assert {job for job in keys if replace(pretraining(), job=job).key != keys[job]} == {"fedca"}


def test_frozen_reading_ignores_the_encoder_rate():
    warm = get_preset("demo", encoder_lr_factor=0.1, frozen_epochs=3)
    assert finetuning(mode="frozen", preset=warm).key == finetuning(mode="frozen").key
    assert finetuning(preset=warm).key != finetuning().key


@pytest.mark.parametrize("name", SETTINGS)
def test_pretraining_is_shared_by_fine_tuning_settings_only(name):
    value = get_preset("demo").values()[name]
    if name == "pretraining.optimizer":
        other = "sgd"
    elif isinstance(value, tuple):
        other = (*value, 8)
    elif isinstance(value, bool):
        other = not value
    else:
        other = value / 2 if isinstance(value, float) else (value or 0) + 1
    changed = pretraining(**{name: other})
    # A row that starts from a network has its rounds in place of the usual ones.
    assert (changed.key == pretraining().key) == (name.startswith("finetuning.") or name.endswith("adaptation_rounds"))


def test_pretraining_seed_and_preset_reach_what_builds_on_it():
    keys = {finetuning(pretraining=one).key for one in (pretraining(), pretraining(seed=1), pretraining(rounds=9))}
    assert len(keys) == 3


ABC = Dataset(Path("images"), ANATOMIES["acdc"], Path("splits.json"), "abc")
STORED = [
    ("fcl", "small", {}, "08eb398bb383414150c0", "96a5dddb3f2513aeaa16", "9e372cebbe804f84f68a"),
    ("fedbyol", "paper", {}, "45a23ae2d0df9e3a09ef", "cc5421a72c07b7f03e4c", "f04fbeaf4afd95845a95"),
    ("fedsimclr", "demo", {"rounds": 3}, "4a1dea904e4d428afd79", "3f89b7febb13d2221c93", "59c570ed0a8c81c6eecf"),
]
"""Keys as computed by version 0.1. If they change, people have to repeat trainings that they already have."""


@pytest.mark.parametrize(("job", "preset", "changes", "key", "full", "frozen"), STORED)
def test_results_of_version_0_1_are_still_found(job, preset, changes, key, full, frozen):
    sizes = get_preset(preset, **changes)
    start = Pretraining(job, 1, sizes, ABC)
    cells = [Finetuning("local", job, 2, "site-1", 0, 0, mode, sizes, ABC, start) for mode in ("full", "frozen")]
    assert (start.key, *(cell.key for cell in cells)) == (key, full, frozen)


def test_results_of_version_0_1_with_a_changed_setting_are_still_found():
    cell = Finetuning("federated", "random", 4, None, 1, 0, "full", get_preset("small", finetune_lr=0.0005), ABC, None)
    assert cell.key == "d201f45f62bf08f7f429"


def test_cache_keeps_whole_results_only(tmp_path):
    cache = Cache(tmp_path)
    key = finetuning().key
    assert cache.get(key) is None
    cache.put(key, {"dice": 0.5})
    assert cache.get(key) == {"dice": 0.5}
    cache.path(key).write_text('{"dice": 0.')
    assert cache.get(key) is None, "half a file counts as not run"
    assert [path.name for path in cache.path(key).parent.iterdir()] == [f"{key}.json"]
