"""Follows what a user types to where it takes effect: the job that is started, the study that is requested."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fclseg.cli import main
from fclseg.data.sites import Splits
from fclseg.errors import FCLSegError
from fclseg.flare.launch import read_job
from fclseg.presets import get_preset
from fclseg.study.plan import plan
from fclseg.study.run import StudyOptions, make_request
from fclseg.study.tables import TABLES, choose_methods, table_rows

ROOT = Path(__file__).parents[2]


@pytest.fixture
def started(monkeypatch):
    """What ``fclseg pretrain`` would start."""
    found = {}

    def simulate(job, run, sites, places, progress):
        found.update(settings=read_job(job)[1], sites=list(sites), runs=run.parent, places=places)
        raise FCLSegError("nothing was trained")

    monkeypatch.setattr("fclseg.flare.launch.simulate", simulate)
    return found


def test_every_option_of_pretrain_reaches_the_job(started, shared_folder, tmp_path, capsys):
    splits = tmp_path / "splits.json"
    folds = {"north": [["patient001"], ["patient002"]], "south": [["patient003"], ["patient004"]]}
    Splits({name: [patient for group in groups for patient in group] for name, groups in folds.items()}, folds).save(
        splits
    )
    arguments = ["--job", ROOT / "jobs" / "fclopt_dp", "--data", shared_folder, "--splits", splits, "--preset", "demo",
                 "--rounds", 7, "--seed", 5, "--fraction", 0.5, "--fold", 1, "--name", "mine", "--runs", tmp_path,
                 "--set", "local_epochs=3", "--set", "channels=2,4"]  # fmt: skip
    assert main(["pretrain", *map(str, arguments)]) == 1
    assert capsys.readouterr().err == "fclseg: nothing was trained\n"
    expected = {"job": "fclopt_dp", "preset": "demo", "rounds": 7, "seed": 5, "fraction": 0.5, "fold": 1, "run": "mine"}
    expected |= {"pickup_timeout": 180}
    assert {name: started["settings"][name] for name in expected} == expected
    assert started["settings"]["changes"] == {"pretraining.local_epochs": 3, "networks.channels": [2, 4]}
    assert started["sites"] == ["north", "south"]
    assert started["runs"] == tmp_path
    assert started["places"] == {"data": str(shared_folder), "splits": str(splits)}


@pytest.fixture
def asked(monkeypatch):
    """What ``fclseg study`` would run."""
    found = []

    def run_study(options):
        found.append(options)
        raise FCLSegError("nothing was run")

    monkeypatch.setattr("fclseg.api.studying.run_study", run_study)
    return found


def test_every_option_of_study_reaches_the_study(asked, tmp_path):
    text = """local --preset demo --rounds 3 --set finetuning.epochs=9 --methods random,fclopt --labels 2,1 --folds 2
    --seeds 4 --pretrain-seeds 5 --mode frozen,full --baseline fclopt --data images --sites 6 --splits s.json
    --transfer-data more --patients 7 --jobs 3 --job-set fraction=0.5 --also-plain --also-pooled --unseen
    --sites-by centre --hold-out north --first-seed 8"""
    assert main(["study", *text.split(), "--out", str(tmp_path)]) == 1
    (options,) = asked
    values = asdict(options)
    values.pop("command")
    assert values == {
        "table": "local", "out": tmp_path, "preset": "demo", "changes": {"rounds": 3, "finetuning.epochs": 9},
        "methods": "random,fclopt", "job_settings": {"fraction": 0.5}, "unseen": True,
        "filters": (), "also_plain": True, "also_pooled": True, "labels": (1, 2), "folds": 2,
        "seeds": 4, "pretrain_seeds": 5, "modes": ("frozen", "full"), "baseline": "fclopt", "data": Path("images"),
        "sites": 6, "splits": Path("s.json"), "transfer_data": Path("more"), "patients": 7, "workers": 3,
        "sites_by": "centre", "hold_out": "north", "first_seed": 8,
    }  # fmt: skip


def test_a_study_is_every_combination_of_what_was_asked_for(shared_folder, tmp_path):
    options = StudyOptions("local", tmp_path, "demo", labels=(1, 2), folds=2, seeds=2, pretrain_seeds=3,
                      modes=("full", "frozen"), data=shared_folder, sites=2)  # fmt: skip
    table, preset = TABLES["local"], get_preset("demo")
    rows = table_rows(table, choose_methods(table, "random,fclopt,local_cl"), preset)
    cells = [planned.cell for planned in plan(make_request(options, table, rows, tmp_path))]
    random, fclopt, local_cl = ([cell for cell in cells if cell.job == job] for job in ("random", "fclopt", "local_cl"))
    assert len(random) == 2 * 2 * 2 * 2 * 2  # seeds, folds, sites, labels, modes
    assert len(fclopt) == len(local_cl) == 3 * len(random)
    assert len({cell.key for cell in cells}) == len(cells)
    assert {cell.pretraining.seed for cell in fclopt} == {0, 1, 2}
    assert {(cell.seed, cell.fold, cell.site, cell.labels, cell.mode) for cell in random} == {
        (seed, fold, site, labels, mode)
        for seed in (0, 1) for fold in (0, 1) for site in ("site-1", "site-2") for labels in (1, 2)
        for mode in ("full", "frozen")
    }  # fmt: skip


def test_transfer_pretrains_on_one_data_set_and_fine_tunes_on_the_other(shared_folder, hospitals, tmp_path):
    options = StudyOptions(
        "transfer", tmp_path, "demo", labels=(1,), data=shared_folder, sites=2, transfer_data=hospitals["site-2"]
    )
    table = TABLES["transfer"]
    rows = table_rows(table, ("fclopt",), get_preset("demo"))
    (cell,) = [planned.cell for planned in plan(make_request(replace(options, folds=1), table, rows, tmp_path))]
    assert (cell.pretraining.data.root, cell.data.root) == (shared_folder, hospitals["site-2"])
