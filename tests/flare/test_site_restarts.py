"""Simulated sites whose process dies: started again, left out if it keeps dying, left alone when the run is over."""

import contextlib
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness import Simulation, identical, misbehave
from nvflare.apis.controller_spec import Task, TaskCompletionStatus
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.private.fed.app.simulator import simulator_runner
from nvflare.private.fed.app.simulator.simulator_runner import SimulatorClientRunner

from fclseg.flare.controller import RoundController
from fclseg.flare.patches import fast_simulator
from fclseg.flare.patches.site_restarts import MOST_RESTARTS, SiteRestarts
from fclseg.phantom.dataset import write_phantom

DIED, FAILED = (True, None, "site-1"), (True, "the next site", None)
"""What NVFlare returns if a process is gone, or has stopped because of an error of its own."""


def site(name="site-1"):
    return SimpleNamespace(client_name=name)


def nobody():
    pytest.fail("a process was killed")


@pytest.mark.parametrize("outcome", [DIED, FAILED])
def test_a_site_that_dies_is_started_again_three_times_and_then_left_out(outcome):
    restarts = SiteRestarts()
    one_task = restarts.watch(lambda runner, client, threads, timeout: outcome, nobody)
    for _ in range(MOST_RESTARTS):
        assert one_task(None, site(), 2, timeout=60) == (False, None, None) and not restarts.gave_up("site-1")
    assert one_task(None, site(), 2, timeout=60) == outcome and restarts.gave_up("site-1")
    assert not restarts.gave_up("site-2") and MOST_RESTARTS == 3


def test_nvflare_starts_the_process_again_in_the_same_thread():
    """NVFlare's own loop over tasks: the site dies once, and the next process runs to the end of the run."""
    outcomes, clients = [DIED, (False, "x", None), (True, "x", "site-1")], [site()]
    clients[0].simulate_running = False
    runner = SimulatorClientRunner("", SimpleNamespace(set=None, workspace=""), clients, {}, None, {})
    started = []

    def do_one_task(runner, client, *args, **kwargs):
        started.append(client.client_name)
        stop, following, ended = outcomes.pop(0)
        return stop, following and client, ended

    runner.do_one_task = SiteRestarts().watch(do_one_task, nobody).__get__(runner)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator_runner, "time", SimpleNamespace(sleep=lambda seconds: None))
        runner.run_client_thread(1, None, simulator_runner.threading.Lock(), False)
    assert started == ["site-1"] * 3 and runner.clients_finished_end_run == ["site-1"]


@pytest.mark.parametrize("outcome", [DIED, FAILED, (True, "the next site", "site-1"), (False, "the next site", None)])
def test_when_the_run_is_over_or_all_is_well_nothing_changes(outcome):
    restarts = SiteRestarts()
    if outcome in (DIED, FAILED):
        restarts.run_ended()
    one_task = restarts.watch(lambda runner, client: outcome, nobody)
    assert [one_task(None, site()) for _ in range(9)] == [outcome] * 9
    assert not restarts.gave_up("site-1")


def test_a_process_that_is_not_ready_in_time_is_killed_before_another_one_starts():
    def not_ready(runner, client):
        raise RuntimeError("Failed to create connection to the child process")

    restarts, killed = SiteRestarts(), []
    one_task = restarts.watch(not_ready, lambda: killed.append(1))
    assert [one_task(None, site()) for _ in range(4)] == [(False, None, None)] * 3 + [DIED]
    assert len(killed) == 4 and restarts.gave_up("site-1")


class Starter:
    """In place of the process that starts sites."""

    start = kill_latest = None

    def __init__(self):
        self.restarts = SiteRestarts()


def test_the_server_waits_no_longer_for_a_site_that_keeps_dying(monkeypatch):
    def cancel(self, task, status, fl_ctx):
        task.completion_status = status

    monkeypatch.setattr(RoundController, "cancel_task", cancel)
    starter = Starter()
    monkeypatch.setattr(fast_simulator, "STARTERS", [starter])
    one_task = starter.restarts.watch(lambda runner, client: DIED, nobody)
    while one_task(None, site()) != DIED:
        pass
    task, controller = Task("pretrain", Shareable()), RoundController({"job": "fedbyol"})
    task.client_tasks = ["fetched"]
    controller._wait({"site-1": task}, 7200, Signal(), FLContext())
    assert task.completion_status == TaskCompletionStatus.TIMEOUT
    assert controller._fault("site-1", task, 7200) == "is not started again, because its process keeps dying"


def test_the_simulator_of_a_job_watches_its_sites(monkeypatch):
    original = SimulatorClientRunner.do_one_task
    for name in ("subprocess", "time"):
        monkeypatch.setattr(simulator_runner, name, getattr(simulator_runner, name))
    monkeypatch.setattr(SimulatorClientRunner, "do_one_task", original)
    monkeypatch.setattr(fast_simulator, "STARTERS", [])
    monkeypatch.setattr(fast_simulator, "SiteStarter", Starter)
    monkeypatch.setattr(fast_simulator, "in_simulator", lambda: True)
    fast_simulator.speed_up_simulator()
    assert SimulatorClientRunner.do_one_task.__wrapped__ is original


SETTINGS = {"preset": "demo", "rounds": 3, "seed": 3, "changes": {"batch_size": 8}}


def processes(simulation: Simulation, name: str) -> list[int]:
    """The processes of a simulated site, which work in its folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            folder = entry.readlink()
        except OSError:
            continue
        if folder.name == name and folder.is_relative_to(simulation.folder):
            found.append(int(entry.parent.name))
    return found


@pytest.fixture(scope="module")
def simulations(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulations")
    write_phantom(folder / "data", patients=8, frames=2)

    def make(name: str, **settings) -> Simulation:
        (folder / name).mkdir()
        return Simulation(folder / name, folder / "cache", "fclopt_dp", {**SETTINGS, **settings}, folder / "data")

    return make


@pytest.mark.nightly
@pytest.mark.simulator
@pytest.mark.parametrize("threads", ["2", "1"])
def test_a_run_with_a_killed_site_gives_the_same_bits(simulations, threads):
    calm, disturbed = simulations(f"calm-{threads}"), simulations(f"disturbed-{threads}")
    assert calm.complete("-n", "2", "-t", threads) == 0, calm.log[-3000:]
    process, killed = disturbed.start("-n", "2", "-t", threads), set()
    while "the process of site-2 has died" not in disturbed.log:
        assert process.poll() is None, disturbed.log[-3000:]
        new = [one for one in processes(disturbed, "site-2") if one not in killed] if disturbed.rounds else []
        for one in new[:1]:  # with one thread, it may have ended by itself in the meantime; then the next one is killed
            killed.add(one)
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.02)
    assert disturbed.finish(process) == 0, disturbed.log[-3000:]
    assert "the process of site-2 has died and is started again" in disturbed.log
    assert [sorted(record["sites"]) for record in disturbed.rounds] == [["site-1", "site-2"]] * 3
    assert identical(disturbed.final(), calm.final())


@pytest.mark.nightly
@pytest.mark.simulator
def test_a_site_that_dies_in_every_task_is_left_out_and_the_run_goes_on(simulations):
    simulation = simulations("dying", rounds=2)
    misbehave(simulation, {"site-2": "die"})
    assert simulation.complete("-n", "2", "-t", "2") == 0, simulation.log[-3000:]
    first, second = (record["sites"] for record in simulation.rounds)
    assert first["site-2"]["status"] == "site-2 is not started again, because its process keeps dying"
    assert first["site-1"]["status"] == second["site-1"]["status"] == "ok" and "site-2" not in second
