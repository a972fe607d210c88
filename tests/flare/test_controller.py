"""Which sites take part when a run is started and continued, as decided by the NVFlare controller."""

import json
from types import SimpleNamespace

import pytest
from contexts import server_context
from inprocess import InProcess
from nvflare.apis.signal import Signal

from fclseg.engine.run_folder import RunFolder
from fclseg.flare.controller import RoundController
from fclseg.flare.runs.submitted import SubmittedRun
from fclseg.phantom.dataset import write_phantom

SITES = ("site-1", "site-2", "site-3")


@pytest.fixture
def submit(tmp_path, monkeypatch):
    """Submit one run's job with some sites connected; the server may die in a round."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FCLSEG_DEVICE", "cpu")
    write_phantom(tmp_path / "data", patients=1, frames=2)
    run = InProcess(tmp_path / "run", dict.fromkeys(SITES, tmp_path / "data"), "fclopt_dp", rounds=3)
    (run.run / "config.json").unlink()  # the controller writes its own

    def submit(present, dies_in=None):
        run.dies_in, run.absent = dies_in, {site: range(9) for site in SITES if site not in present}
        controller = RoundController(run.settings.to_dict())
        core = SimpleNamespace(
            **dict.fromkeys(
                ("add_incoming_filter", "add_outgoing_request_filter", "add_outgoing_reply_filter"), lambda *given: None
            )
        )
        engine = {
            "get_clients": lambda: [SimpleNamespace(name=site) for site in present],
            "get_cell": lambda: SimpleNamespace(core_cell=core),
        }
        context = server_context(run.folder / "server", **engine)
        controller._engine = context.get_engine()

        def ask(task, messages, timeout, accept, abort_signal, fl_ctx):
            run.attendance = controller._attendance
            assert set(messages) <= set(present)  # NVFlare cannot send to a site that is not in the job
            return run.ask(task, messages, timeout, accept)

        controller._ask = ask
        folder = RunFolder(controller.run_path(context))
        with folder.held():
            controller._run(folder, Signal(), context)

    submit.path = run.run
    return submit


def _records(path):
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


def test_a_run_that_lost_a_site_goes_on_and_takes_it_back(submit):
    with pytest.raises(KeyboardInterrupt):
        submit(SITES, dies_in=1)
    with pytest.raises(KeyboardInterrupt):
        submit(SITES[:2], dies_in=2)
    submit(SITES)
    assert [record["drawn"] for record in _records(submit.path)] == [list(SITES), list(SITES[:2]), list(SITES)]
    assert json.loads((submit.path / "config.json").read_text())["sites"] == list(SITES)


def test_a_run_that_began_with_one_site_is_joined_by_the_others(submit):
    with pytest.raises(KeyboardInterrupt):
        submit(SITES[:1], dies_in=1)
    first = json.loads((submit.path / "config.json").read_text())
    submit(SITES)
    records = _records(submit.path)
    assert [record["drawn"] for record in records] == [["site-1"], list(SITES), list(SITES)]
    assert {report["status"] for record in records for report in record["sites"].values()} == {"ok"}
    assert json.loads((submit.path / "config.json").read_text()) == {**first, "sites": list(SITES)}


def test_a_start_that_is_not_allowed_is_a_lasting_failure(tmp_path):
    """The server's keeper would otherwise submit the job again and again."""
    controller, panics = RoundController({"job": "mean_teacher", "run": "x", "network": "/etc/passwd"}), []
    context = server_context(tmp_path / "server")
    controller.system_panic = lambda reason, fl_ctx: panics.append(reason)
    controller.control_flow(Signal(), context)
    assert "is not below the server's folder of runs" in panics[0]
    assert SubmittedRun(tmp_path / "server" / "runs" / "x").lasting_failure
