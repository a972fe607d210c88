"""A site fails in many ways, each with a patient's name in it. The server and the logs learn only the error type."""

import json
import logging

import pytest
from broken_sites import FAULTS, NAME, break_site
from contexts import site_context
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.signal import Signal

from fclseg.engine.messages import FORMAT, PRETRAIN_TASK, Message
from fclseg.engine.place import LOCAL_FILE
from fclseg.engine.run_settings import RunSettings
from fclseg.federation.states import to_arrays
from fclseg.flare.executor import SiteExecutor
from fclseg.flare.learner import SiteLearner
from fclseg.flare.wire import REASON, to_shareable
from fclseg.hospital import problems
from fclseg.methods.registry import build_method

TINY = {"channels": [2, 4], "hidden": 4, "batch_size": 4}


def task():
    settings = RunSettings.read({"job": "fedbyol", "changes": TINY}, {})
    method = build_method(settings.row, settings.build_preset(), 0)
    run = {"id": "run-1", "format": FORMAT, "settings": settings.to_dict(), "sites": ["site-1"], "shared": {}}
    components = {name: to_arrays(method.send(name)) for name in ("online", "predictor")}
    return to_shareable(Message(components, meta={"round": 0, "run": run}))


@pytest.mark.parametrize("fault", list(FAULTS))
def test_only_the_kind_of_a_problem_leaves(fault, tmp_path, caplog, capfd, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    caplog.set_level(logging.DEBUG)
    kit = tmp_path / "kit"
    learner = SiteLearner()
    context = site_context(kit, get_component=lambda name: learner, get_all_components=dict)
    own = {"cache": str(tmp_path / "cache"), "device": "cpu", "policy": {"changes": list(TINY)}}
    (kit / LOCAL_FILE).write_text(json.dumps(break_site(tmp_path / "data", fault, own)))
    reply = SiteExecutor("learner").execute(PRETRAIN_TASK, task(), context, Signal())
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert reply.get_header(REASON).endswith("Error, see problems.log in the site's folder of runs")
    printed = capfd.readouterr()
    for text in (str(dict(reply)), caplog.text, printed.out, printed.err):
        assert NAME not in text and str(tmp_path) not in text
    assert (kit / "runs" / "problems.log").stat().st_size > 100


def test_a_site_that_fails_for_weeks_does_not_fill_its_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(problems, "MOST_BYTES", 1000)
    for number in range(100):
        problems.note_problem(tmp_path, f"round {number}", ValueError("x" * 300))
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept.keys() == {"problems.log", "problems.log.1"}
    assert "round 99" in kept["problems.log"] and sum(map(len, kept.values())) < 3000
