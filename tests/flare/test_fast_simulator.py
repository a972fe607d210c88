"""Sites of a simulation that start as copies of one prepared process, with NVFlare's command, exit code and signals."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from nvflare.apis.fl_context import FLContext
from nvflare.utils.job_launcher_utils import add_custom_dir_to_path

from fclseg.flare.controller import RoundController
from fclseg.flare.patches import fast_simulator
from fclseg.flare.patches.fast_simulator import SiteStarter, StartedSite

MODULE = """
import os, sys, time, torch
from nvflare.fuel.f3.streaming.stream_utils import gen_stream_id
result = sys.argv[1]
with open(result + ".part", "w") as file:
    print(*sys.argv[1:], os.environ.get("ASKED"), __name__, os.getsid(0) == os.getpid(), gen_stream_id(), file=file)
os.rename(result + ".part", result)
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
"""


@pytest.fixture(scope="module")
def starter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("module")
    (folder / "a_site.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)  # and the package under test
        starter = SiteStarter()
        yield starter
        starter.close()
        assert starter.process.wait(600) == 0, "it ends when the simulator does"


def start(starter, result, seconds=0, code=0, custom=None, **variables):
    command = [sys.executable, "-m", "a_site", str(result), str(seconds), str(code)]
    environment = {**os.environ, **variables}
    add_custom_dir_to_path(str(custom or result.parent / "no-code"), environment)  # as the simulator does it
    return starter.start(command, env=environment, preexec_fn=os.setsid, shell=False)


def written(result):
    deadline = time.monotonic() + 1800
    while not result.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return result.read_text().split()


def test_a_site_gets_its_arguments_and_variables_and_its_exit_code_arrives(starter, tmp_path):
    site = start(starter, tmp_path / "result", code=7, ASKED="yes")
    assert isinstance(site, StartedSite)
    assert site.wait(600) == site.poll() == 7
    assert written(tmp_path / "result")[:-1] == [str(tmp_path / "result"), "0", "7", "yes", "__main__", "True"]


def test_a_living_site_can_be_stopped(starter, tmp_path):
    sites = [start(starter, tmp_path / f"{number}", seconds=1000) for number in range(2)]
    for number in range(2):
        written(tmp_path / f"{number}")
    assert [site.poll() for site in sites] == [None, None]
    with pytest.raises(subprocess.TimeoutExpired):
        sites[0].wait(0.1)
    sites[0].terminate()
    sites[1].kill()
    assert [site.wait(600) for site in sites] == [-signal.SIGTERM, -signal.SIGKILL]


def test_a_thread_kills_the_site_that_it_started_last(starter, tmp_path):
    other = start(starter, tmp_path / "other", seconds=1000)
    with ThreadPoolExecutor(1) as thread:
        mine = thread.submit(start, starter, tmp_path / "mine", seconds=1000).result()
        thread.submit(starter.kill_latest).result()
    assert mine.wait(600) == -signal.SIGKILL and other.poll() is None
    starter.kill_latest()
    assert other.wait(600) == -signal.SIGKILL


def test_two_sites_number_their_streams_differently(starter, tmp_path):
    """The server takes a second stream with a known number for a repetition and never answers it."""
    for name in ("first", "second"):
        start(starter, tmp_path / name).wait(600)
    assert written(tmp_path / "first")[-1] != written(tmp_path / "second")[-1]


def test_a_job_with_code_of_its_own_gets_a_new_interpreter(starter, tmp_path):
    (tmp_path / "custom").mkdir()
    for code in (False, True):
        if code:
            (tmp_path / "custom" / "fclseg.py").write_text("")
        site = start(starter, tmp_path / f"{code}", custom=tmp_path / "custom")
        assert isinstance(site, subprocess.Popen) == code
        assert site.wait(600) == 0


def test_sites_start_without_the_starter_if_it_has_died(starter, tmp_path):
    other = SiteStarter()
    other.process.kill()
    other.process.wait()
    site = start(other, tmp_path / "result", code=3)
    assert isinstance(site, subprocess.Popen)
    assert site.wait(600) == 3
    other.close()


def test_a_run_that_is_over_waits_for_no_site(starter, tmp_path, monkeypatch):
    """A site that was left out may train for hours, and the simulator would wait for it."""
    starter, over = SiteStarter(), threading.Event()  # one of its own, because it kills every site from now on

    def sleep(seconds):
        over.wait() if seconds == fast_simulator.END_SECONDS else time.sleep(seconds)

    monkeypatch.setattr(fast_simulator, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    monkeypatch.setattr(fast_simulator, "STARTERS", [starter])
    busy, quick = start(starter, tmp_path / "busy", seconds=1000), start(starter, tmp_path / "quick", code=3)
    written(tmp_path / "busy")
    assert quick.wait(600) == 3 and busy.poll() is None
    controller = RoundController({"job": "fclopt_dp"})
    monkeypatch.setattr(controller, "cancel_all_tasks", lambda: None)
    controller.stop_controller(FLContext())
    assert busy.poll() is None, "it gets some time to end by itself"
    over.set()
    assert busy.wait(180) == -signal.SIGKILL and quick.poll() == 3
    late = start(starter, tmp_path / "late", seconds=1000)
    assert late.wait(180) == -signal.SIGKILL, "the simulator may start another site in the meantime"
    died = (True, None, "site-1")
    assert starter.restarts.watch(lambda runner, client: died, starter.kill_latest)(None, None) == died
    starter.close()


def test_real_parties_start_no_starter(monkeypatch):
    """NVFlare imports its simulator in every process, so that says nothing."""
    import fclseg.flare.patches.fast_simulator as module

    assert not module.in_simulator()
    monkeypatch.setattr(module, "SiteStarter", lambda: pytest.fail("a starter was started"))
    module.speed_up_simulator()
    assert module.simulator_runner.subprocess is subprocess
