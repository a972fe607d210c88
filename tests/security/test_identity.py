"""A site gets its identity, its folders and whether it is simulated from NVFlare, never from a job or the server."""

import json

import pytest
from contexts import LEAD, server_context, site_context
from nvflare.apis.fl_constant import ReservedKey

from fclseg.engine.messages import FORMAT, Message
from fclseg.engine.place import LOCAL_FILE
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.site import Site
from fclseg.errors import FCLSegError
from fclseg.flare.curves import SiteCurves
from fclseg.flare.executor import SiteExecutor
from fclseg.flare.filters import ClipAndNoise
from fclseg.flare.learner import SiteLearner
from fclseg.flare.wire import SIMULATED_JOB, server_place, site_place

SETTINGS = RunSettings.read({"job": "fclopt_dp"}, {}).to_dict()


@pytest.mark.parametrize("build", [SiteLearner, SiteCurves])
@pytest.mark.parametrize("argument", ["workspace", "job_id", "site", "simulated"])
def test_no_class_takes_its_identity_from_a_job(build, argument):
    with pytest.raises(TypeError, match=argument):
        build(**{argument: "../../.."})
    with pytest.raises(TypeError, match=argument):
        ClipAndNoise(clip=1.0, sigma=0.0, **{argument: "../../.."})
    with pytest.raises(TypeError, match=argument):
        SiteExecutor("learner", **{argument: "../../.."})


def test_a_place_is_nvflares_own(tmp_path):
    place = site_place(site_context(tmp_path, "hospital-a"))
    assert (place.name, place.workspace, place.simulated) == ("hospital-a", tmp_path, False)
    assert place.submitter == LEAD and place.runs == tmp_path / "runs"


@pytest.mark.parametrize("name", ["../../..", "a/b", "..", ".hidden", ""])
def test_a_name_that_leads_out_of_the_runs_folder_is_refused(tmp_path, name):
    with pytest.raises(FCLSegError, match="cannot be used as a folder name"):
        site_place(site_context(tmp_path, name))


def test_the_simulators_job_id_makes_no_simulation_of_a_real_site(tmp_path):
    context = site_context(tmp_path)
    context.put(ReservedKey.RUN_NUM, SIMULATED_JOB, private=True, sticky=False)
    assert not site_place(context).simulated
    assert site_place(site_context(tmp_path, simulated=True)).simulated
    assert server_place(server_context(tmp_path, simulated=True)).simulated
    assert not server_place(server_context(tmp_path)).simulated


def test_a_server_cannot_choose_a_real_sites_folders(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "theirs").mkdir()
    context = site_context(tmp_path)
    (tmp_path / LOCAL_FILE).write_text(json.dumps({"data": str(tmp_path / "own")}))
    shared = {name: str(tmp_path / "theirs") for name in ("data", "runs", "cache", "splits")}
    run = {"id": "run-1", "format": FORMAT, "settings": SETTINGS, "sites": ["site-1"], "shared": shared}
    site = Site.of(site_place(context), Message(meta={"round": 0, "run": run}))
    assert site.place.data == tmp_path / "own" and site.memory.folder == tmp_path / "runs/fclopt_dp-demo/sites/site-1"
    assert str(tmp_path / "theirs") not in {str(site.place.cache), str(site.place.splits)}


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "../../elsewhere"},
        {"run": "/etc"},
        {"job": "../fclopt"},
        {"sigma": 1.0},
        {"rounds": "many"},
        {"changes": {"pretraining.batch_size": 0}},
        {"unknown": 1},
    ],
)
def test_settings_from_a_server_are_checked_like_any_others(tmp_path, changes):
    run = {"id": "run-1", "format": FORMAT, "settings": {**SETTINGS, **changes}, "sites": ["site-1"], "shared": {}}
    with pytest.raises(FCLSegError):
        Site.of(site_place(site_context(tmp_path)), Message(meta={"round": 0, "run": run}))
