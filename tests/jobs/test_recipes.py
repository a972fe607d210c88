"""NVFlare's recipes write the same jobs as the generator, and run in its environments."""

import importlib
import json
import os
import sys
from pathlib import Path

import pytest
from nvflare.recipe import PocEnv, ProdEnv, SimEnv

from fclseg.data.sites import Splits
from fclseg.engine.job_defaults import defaults
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.flare.jobs import files
from fclseg.flare.recipe import PretrainRecipe
from fclseg.flare.runs.overview import read_run
from fclseg.methods.exchange import ROWS
from fclseg.phantom.dataset import phantom_sites, write_phantom


@pytest.mark.parametrize("job", sorted(ROWS))
def test_a_recipe_exports_what_the_generator_writes(tmp_path, job):
    settings = defaults(ROWS[job])
    PretrainRecipe(job, **settings).export(str(tmp_path))
    written = {str(path.relative_to(tmp_path / job)): path.read_text() for path in tmp_path.rglob("*.json")}
    assert written == files(ROWS[job], settings, simulator=False)


@pytest.mark.parametrize("job", sorted(ROWS))
def test_a_recipe_without_settings_has_the_start_and_the_budget_of_its_job(job):
    wanted, made = defaults(ROWS[job]), PretrainRecipe(job).settings
    assert made.network == ROWS[job].start
    assert made.build_preset() == RunSettings.read({"job": job, **wanted}, {}).build_preset()


def test_a_recipe_with_an_unknown_setting_is_refused():
    with pytest.raises(FCLSegError, match="unknown setting 'epochs'"):
        PretrainRecipe("fclopt_dp", epochs=3)


def test_a_proof_of_concept_starts_with_all_its_sites(tmp_path, monkeypatch):
    """NVFlare submits the job while sites are still starting."""
    monkeypatch.setenv("NVFLARE_POC_WORKSPACE", str(tmp_path / "poc"))
    recipe, poc = PretrainRecipe("fclopt_dp", rounds=2), PocEnv(num_clients=3)
    simulation = SimEnv(num_clients=2, workspace_root=str(tmp_path / "simulation"))
    for number, (env, fewest) in enumerate([(None, 1), (poc, 3), (poc, 3), (simulation, 1)]):
        if env is not None:
            recipe.process_env(env)
        recipe.export(str(tmp_path / str(number)))
        meta = json.loads((tmp_path / str(number) / "fclopt_dp" / "meta.json").read_text())
        assert (meta["min_clients"], meta["name"], meta["deploy_map"]) == (fewest, "fclopt_dp", {"app": ["@ALL"]})


@pytest.mark.nightly
def test_a_recipe_runs_in_the_simulator(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("FCLSEG_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
    recipe = PretrainRecipe("fclopt_dp", preset="demo", rounds=2, run="by-recipe")
    recipe.execute(SimEnv(num_clients=2, num_threads=2, workspace_root=str(tmp_path / "simulation")))
    run = read_run(tmp_path / "runs" / "by-recipe")
    assert (run.state, len(run.records), [site.name for site in run.sites]) == ("complete", 2, ["site-1", "site-2"])
    assert "deprecated" not in "".join(capfd.readouterr()).lower()


@pytest.fixture
def hospitals(tmp_path, monkeypatch):
    """Images that two real sites share, divided by a split, and a virtual environment that is active."""
    write_phantom(tmp_path / "data", patients=4, frames=2, sites=2)
    owner = {patient: site for site, patients in phantom_sites(4, 2).items() for patient in patients}
    Splits.make(sorted(owner), owner, folds=2).save(tmp_path / "splits.json")
    for name, value in {"DATA": "data", "SPLITS": "splits.json", "CACHE": "cache"}.items():
        monkeypatch.setenv(f"FCLSEG_{name}", str(tmp_path / value))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()


def _check(result, capfd):
    """The downloaded result of a run of two rounds with both sites."""
    records = [json.loads(line) for line in (Path(result) / "rounds.jsonl").read_text().splitlines()]
    assert [sorted(record["sites"]) for record in records] == [["site-1", "site-2"]] * 2
    assert {report["status"] for record in records for report in record["sites"].values()} == {"ok"}
    assert (Path(result) / "encoder.safetensors").stat().st_size > 1000
    assert "deprecated" not in "".join(capfd.readouterr()).lower()


@pytest.mark.nightly
def test_a_recipe_runs_as_proof_of_concept(only_poc, hospitals, capfd):
    recipe = PretrainRecipe("fclopt_dp", preset="demo", rounds=2, run="by-recipe")
    env = PocEnv(num_clients=2, extra={"login_timeout": 600})
    try:
        run = recipe.execute(env)
        result = run.get_result(timeout=1800, clean_up=False)
        assert run.get_status().startswith("FINISHED:COMPLETED")
        _check(Path(result) / "workspace" / "fclseg", capfd)
    finally:
        env.stop(clean_up=True)


@pytest.mark.nightly
def test_a_recipe_runs_at_provisioned_sites(tmp_path, monkeypatch, hospitals, capfd):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "poc")
    parties = importlib.import_module("parties")
    federation = parties.Federation(tmp_path)
    federation.provision()
    recipe = PretrainRecipe("fclopt_dp", preset="demo", rounds=2, run="by-recipe", min_sites=2)
    try:
        federation.start_all()
        env = ProdEnv(str(federation.kit(parties.LEAD)), login_timeout=600.0, username=parties.LEAD)
        run = recipe.execute(env)
        result = run.get_result(timeout=1800)
        assert run.get_status().startswith("FINISHED:COMPLETED")
        _check(Path(result) / "workspace" / "fclseg", capfd)
    finally:
        federation.stop()
