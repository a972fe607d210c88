"""NVFlare's recipes write the same jobs as the generator, and run in its environments."""

import pytest
from nvflare.recipe import SimEnv

from fclseg.errors import FCLSegError
from fclseg.federation.exchange import ROWS
from fclseg.flare.jobs import defaults, files
from fclseg.flare.recipe import PretrainRecipe
from fclseg.flare.runs.overview import read_run


@pytest.mark.parametrize("job", sorted(ROWS))
def test_a_recipe_exports_what_the_generator_writes(tmp_path, job):
    settings = defaults(ROWS[job])
    PretrainRecipe(job, **settings).export(str(tmp_path))
    written = {str(path.relative_to(tmp_path / job)): path.read_text() for path in tmp_path.rglob("*.json")}
    assert written == files(ROWS[job], settings, simulator=False)


def test_a_recipe_with_an_unknown_setting_is_refused():
    with pytest.raises(FCLSegError, match="unknown setting 'epochs'"):
        PretrainRecipe("fclopt_dp", epochs=3)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_recipe_runs_in_the_simulator(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("FCLSEG_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
    recipe = PretrainRecipe("fclopt_dp", preset="demo", rounds=2, run="by-recipe")
    recipe.execute(SimEnv(num_clients=2, num_threads=2, workspace_root=str(tmp_path / "simulation")))
    run = read_run(tmp_path / "runs" / "by-recipe")
    assert (run.state, len(run.records), [site.name for site in run.sites]) == ("complete", 2, ["site-1", "site-2"])
    assert "deprecated" not in "".join(capfd.readouterr()).lower()
