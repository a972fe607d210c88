"""How long the server waits for a site, and for which task."""

import contextlib
import threading
import time

import pytest
from contexts import server_context, site_context
from inprocess import InProcess
from nvflare.apis.controller_spec import Task, TaskCompletionStatus
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fclseg.errors import FCLSegError
from fclseg.flare.controller import RoundController
from fclseg.flare.heartbeat import TOPIC, Heartbeat, Pulses


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
    """A controller whose tasks no site fetches. In NVFlare, a cancelled task ends when it has a status."""

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
            working.completion_status = TaskCompletionStatus.OK  # the site answers after the other task was cancelled
        sleep(seconds)

    monkeypatch.setattr("fclseg.flare.controller.time.sleep", later)
    controller._wait({"site-1": lost, "site-2": working}, 1, Signal(), FLContext())
    assert time.monotonic() - began >= 1
    assert lost.completion_status == TaskCompletionStatus.TIMEOUT
    assert working.completion_status == TaskCompletionStatus.OK


def test_a_stopped_run_waits_no_longer(controller):
    stop = Signal()
    stop.trigger(True)
    with pytest.raises(FCLSegError, match="to continue it"):
        controller._wait({"site-1": Task("pretrain", Shareable())}, 1000, stop, FLContext())


def test_a_site_that_fell_silent_costs_its_time_out_once(hospitals, tmp_path):
    run = InProcess(tmp_path / "run", hospitals, "fedbyol", rounds=4)
    run.absent = {"site-2": {1, 2}}
    run.complete()
    assert [sites for _, _, sites in run.asked] == [["site-1", "site-2"], ["site-1", "site-2"], ["site-1"],
                                                    ["site-1", "site-2"]]  # fmt: skip


def test_a_site_that_stops_beating_is_given_up_within_a_minute_and_one_that_never_beat_is_waited_for(controller):
    """By the site's process: it beats while it trains and while it sends, so silence means that it is gone."""
    now = [100.0]
    controller._pulses = Pulses(clock=lambda: now[0])
    tasks = {site: Task("pretrain", Shareable()) for site in ("alive", "dead", "earlier version")}
    for task in tasks.values():
        task.client_tasks = ["fetched"]
    stop = Signal()
    controller._pulses.heard("dead")

    def sleep(seconds):
        now[0] += 10
        controller._pulses.heard("alive")
        if now[0] >= 400:
            stop.trigger(True)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(FCLSegError, match="to continue it"):
        patch.setattr("fclseg.flare.controller.time.sleep", sleep)
        controller._wait(tasks, 7200, stop, FLContext())
    assert tasks["dead"].completion_status == TaskCompletionStatus.TIMEOUT
    assert [tasks[site].completion_status for site in ("alive", "earlier version")] == [None, None]
    assert controller._fault("dead", tasks["dead"], 7200) == "has given no sign of life for 60 s"


def test_the_server_hears_heartbeats_from_the_start_of_a_run(controller, tmp_path):
    now, handlers = [0.0], {}
    controller._pulses = Pulses(clock=lambda: now[0])
    server = server_context(
        tmp_path / "server",
        register_aux_message_handler=lambda topic, message_handle_func: handlers.update({topic: message_handle_func}),
    )
    controller.start_controller(server)
    server.set_peer_context(site_context(tmp_path / "site"))
    handlers[TOPIC](TOPIC, Shareable(), server)
    now[0] = 61.0
    assert controller._pulses.is_silent("site-1")


def test_the_limit_is_a_minute_and_a_beat_takes_silence_back():
    now = [0.0]
    pulses = Pulses(clock=lambda: now[0])
    pulses.heard("site-1")
    now[0] = 60.0
    assert not pulses.is_silent("site-1")
    now[0] = 60.1
    assert pulses.is_silent("site-1") and not pulses.is_silent("site-2")
    pulses.heard("site-1")
    assert not pulses.is_silent("site-1")


def test_a_site_beats_from_its_first_task_on_and_a_simulated_one_does_not(tmp_path):
    beats = []
    engine = {
        "new_context": lambda: contextlib.nullcontext(FLContext()),
        "fire_and_forget_aux_request": lambda **request: beats.append(request["topic"]),
    }
    heart = Heartbeat(seconds=0.01)
    for simulated in (True, False):
        assert beats == []
        heart.start(site_context(tmp_path, simulated=simulated, **engine))
    heart.start(site_context(tmp_path, **engine))  # of the next task
    deadline = time.monotonic() + 1800
    while len(beats) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(beats) == {TOPIC} and len(beats) >= 3
    assert sum(thread.name == heart._thread.name for thread in threading.enumerate()) == 1
