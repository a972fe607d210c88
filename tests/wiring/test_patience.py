"""How long the server waits for a site, and for which task."""

import time

import pytest
from inprocess import InProcess
from nvflare.apis.controller_spec import Task, TaskCompletionStatus
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fclseg.errors import FCLSegError
from fclseg.flare.controller import RoundController


def test_each_task_has_its_own_time_out(hospitals, tmp_path):
    run = InProcess(tmp_path / "run", hospitals, "fclopt_dp", rounds=1, distance_timeout=11, pretrain_timeout=22)
    patience, ask = {}, run.ask

    def asking(task, messages, timeout, accept):
        patience[task] = timeout
        return ask(task, messages, timeout, accept)

    run.ask = asking
    run.complete()
    assert patience == {"distance": 11, "pretrain": 22}


@pytest.fixture
def controller(monkeypatch):
    """A controller whose tasks nobody fetches; NVFlare's own end of a cancelled task is that it has a status."""

    def cancel(self, task, status, fl_ctx):
        task.completion_status = status

    monkeypatch.setattr(RoundController, "cancel_task", cancel)
    return RoundController({"job": "fedbyol"})


def test_a_task_that_is_not_fetched_is_given_up_and_one_under_way_is_waited_for(controller, monkeypatch):
    lost, working = (Task("pretrain", Shareable()) for _ in range(2))
    working.client_tasks = ["fetched"]
    began, sleep = time.monotonic(), time.sleep

    def later(seconds):
        if lost.completion_status is not None and working.completion_status is None:
            working.completion_status = TaskCompletionStatus.OK  # the site answers after the other was given up
        sleep(seconds)

    monkeypatch.setattr("fclseg.flare.controller.time.sleep", later)
    controller._wait([lost, working], 1, Signal(), FLContext())
    assert time.monotonic() - began >= 1
    assert lost.completion_status == TaskCompletionStatus.TIMEOUT
    assert working.completion_status == TaskCompletionStatus.OK


def test_a_stopped_run_waits_no_longer(controller):
    stop = Signal()
    stop.trigger(True)
    with pytest.raises(FCLSegError, match="to continue it"):
        controller._wait([Task("pretrain", Shareable())], 1000, stop, FLContext())


def test_a_site_that_fell_silent_costs_its_time_out_once(hospitals, tmp_path):
    run = InProcess(tmp_path / "run", hospitals, "fedbyol", rounds=4)
    run.absent = {"site-2": {1, 2}}
    run.complete()
    assert [sites for _, _, sites in run.asked] == [["site-1", "site-2"], ["site-1", "site-2"], ["site-1"],
                                                    ["site-1", "site-2"]]  # fmt: skip
