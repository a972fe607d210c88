"""ClipAndNoise: the gate does what the filter asks for, once, and nothing passes that the gate was not asked about."""

import json
import math

import numpy as np
import pytest
from contexts import site_context
from nvflare.apis.event_type import EventType
from nvflare.apis.signal import Signal

from fclseg.engine.messages import FORMAT, PRETRAIN_TASK, Message
from fclseg.engine.model import GlobalModel
from fclseg.engine.place import LOCAL_FILE
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.flare.executor import SiteExecutor
from fclseg.flare.filters import ClipAndNoise
from fclseg.flare.learner import SiteLearner
from fclseg.flare.wire import read_task, to_shareable
from fclseg.hospital.audit import Audit
from fclseg.hospital.policy import EVERYTHING
from fclseg.methods.registry import build_method
from fclseg.phantom.dataset import write_phantom

TINY = {"channels": [2, 4], "hidden": 4, "bank_size": 8, "batch_size": 8}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filtered")
    write_phantom(folder / "data", patients=2, frames=2)
    return folder


@pytest.fixture
def site(tmp_path, data, monkeypatch):
    """A site with this policy; ``site.train`` runs one round of a job as NVFlare does, with the job's filters."""
    monkeypatch.setenv("FCLSEG_DEVICE", "cpu")

    def train(*filters, job="fedbyol", policy=None, events=True, **settings):
        learner = SiteLearner()
        context = site_context(tmp_path, get_component=lambda name: learner, get_all_components=dict)
        own = {"changes": list(TINY), "components": sorted(EVERYTHING), **(policy or {})}
        local = {"data": str(data / "data"), "cache": str(data / "cache"), "policy": own}
        (tmp_path / LOCAL_FILE).write_text(json.dumps(local))
        chosen = RunSettings.read({"job": job, "changes": TINY, "run": f"run{len(audit(tmp_path))}", **settings}, {})
        start = GlobalModel.initial(chosen.row, build_method(chosen.row, chosen.build_preset(), 0)).means
        run = {"id": "run-1", "format": FORMAT, "settings": chosen.to_dict(), "sites": ["site-1"], "shared": {}}
        task = to_shareable(Message(start, meta={"round": 0, "run": run}))
        for one in filters if events else ():
            one.handle_event(EventType.BEFORE_TASK_EXECUTION, context)
        result = SiteExecutor("learner").execute(PRETRAIN_TASK, task, context, Signal())
        for one in filters:
            result = one.process(result, context)
        sent = read_task(result).components
        steps = [
            sent[c][n].astype(float) - a for c, part in start.items() for n, a in part.items() if a.dtype.kind == "f"
        ]
        return np.concatenate([step.ravel() for step in steps])

    train.audit = lambda: audit(tmp_path)[-1]
    return train


def audit(folder):
    return Audit(folder / "runs").entries()


def test_the_gate_clips_once_and_the_audit_says_so(site):
    assert np.linalg.norm(site()) > 0.02
    assert np.linalg.norm(site(ClipAndNoise(0.01, 0.0))) == pytest.approx(0.01, rel=1e-3)
    assert site.audit()["privacy"] == {"clip": 0.01} and site.audit()["norm"] == pytest.approx(0.01, rel=1e-3)
    noisy = site(ClipAndNoise(0.01, 50.0))
    assert noisy.std() == pytest.approx(0.5, rel=0.2), "noise of sigma x clip, added once"
    assert site.audit()["privacy"] == {"clip": 0.01, "sigma": 50.0}
    assert site.audit()["multipliers"] == {"networks": 25.0}


@pytest.mark.parametrize(
    ("filters", "more"),
    [
        ([ClipAndNoise(0.02, 0.0)], {"policy": {"clip": 0.01}}),
        ([ClipAndNoise(0.01, 0.0)], {"policy": {"clip": 0.02}}),
        ([ClipAndNoise(0.02, 0.0)], {"clip": 0.01}),
        ([ClipAndNoise(0.01, 0.0), ClipAndNoise(0.02, 0.0)], {}),
    ],
    ids=["policy", "filter", "job", "another filter"],
)
def test_the_strictest_of_filters_settings_and_policy_holds(site, filters, more):
    assert np.linalg.norm(site(*filters, **more)) == pytest.approx(0.01, rel=1e-3)


def test_noise_that_a_filter_asks_for_is_charged_to_the_budget(site):
    pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")
    site(ClipAndNoise(0.01, 4.0), policy={"epsilon": 3.0})
    assert site.audit()["outcome"] == "sent" and 2.0 < site.audit()["epsilon"] < 2.3


def test_nothing_passes_that_the_gate_was_not_asked_about(site):
    with pytest.raises(FCLSegError, match="the gate was not asked to clip this result"):
        site(ClipAndNoise(0.01, 0.0), events=False)


def test_features_are_not_let_out_as_if_they_were_protected(site):
    with pytest.raises(FCLSegError, match="'bank' are features"):
        site(ClipAndNoise(0.01, 0.0), job="fcl")


@pytest.mark.parametrize(
    ("clip", "sigma"), [(0, 1), (-1, 1), (math.inf, 1), (None, 1), (1, -1), (1, math.nan), ("{$HOME}", 1)]
)
def test_values_that_protect_nothing_are_refused(clip, sigma):
    with pytest.raises(FCLSegError, match=r"the job's filter ClipAndNoise .*: give a number"):
        ClipAndNoise(clip, sigma)
