"""A cell's key depends on everything that determines its result, and on nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest
from study_cells import DATA, finetuning, pretraining

from fclseg.anatomy.registry import ANATOMIES
from fclseg.errors import FCLSegError
from fclseg.presets import SETTINGS, get_preset
from fclseg.study.cache import Cache
from fclseg.study.cells import FORMAT, Dataset
from fclseg.study.run import StudyOptions, run_study

CHANGED = {
    "protocol": "centralised",
    "labels": 2,
    "site": "site-2",
    "fold": 1,
    "seed": 1,
    "mode": "frozen",
    "data": replace(DATA, fingerprint="other"),
    "pretraining": pretraining(),
    "preset": get_preset("demo", finetuning_lr=1.0),
}


@pytest.mark.parametrize("name", CHANGED)
def test_whatever_determines_a_fine_tuning_is_in_its_key(name):
    assert replace(finetuning(), **{name: CHANGED[name]}).key != finetuning().key


def test_places_and_pretraining_settings_do_not_change_a_random_fine_tuning():
    moved = Dataset(Path("/elsewhere"), ANATOMIES["acdc"], Path("/elsewhere/splits.json"), DATA.fingerprint)
    assert finetuning(data=moved).key == finetuning().key
    assert finetuning(preset=get_preset("demo", rounds=99, bank_size=7)).key == finetuning().key
    assert finetuning(job="named differently").key == finetuning().key, "the encoder counts, not the row's name"


def test_a_frozen_encoder_ignores_the_encoder_rate():
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


def test_results_of_another_format_are_refused_with_a_sentence(tmp_path):
    Cache(tmp_path).check()  # an empty folder
    Cache(tmp_path).put(finetuning().key, {"dice": 0.5})
    Cache(tmp_path).check()
    (tmp_path / "format").write_text("99\n")
    with pytest.raises(FCLSegError, match=f"results of format 99, and this version uses format {FORMAT}: choose"):
        Cache(tmp_path).check()
    (tmp_path / "format").unlink()
    with pytest.raises(FCLSegError, match="results of an earlier version"):
        Cache(tmp_path).check()


def test_a_study_refuses_such_a_folder_before_it_writes_anything(tmp_path, monkeypatch):
    monkeypatch.setattr("fclseg.study.run.make_request", lambda *given: pytest.fail("it goes on"))
    (tmp_path / "cells").mkdir()
    with pytest.raises(FCLSegError, match="earlier version"):
        run_study(StudyOptions("local", tmp_path, preset="demo", methods="random"))
    assert [path.name for path in tmp_path.iterdir()] == ["cells"]


def test_cache_keeps_whole_results_only(tmp_path):
    cache = Cache(tmp_path)
    key = finetuning().key
    assert cache.get(key) is None
    cache.put(key, {"dice": 0.5})
    assert cache.get(key) == {"dice": 0.5}
    cache.path(key).write_text('{"dice": 0.')
    assert cache.get(key) is None, "half a file counts as not run"
    assert [path.name for path in cache.path(key).parent.iterdir()] == [f"{key}.json"]
