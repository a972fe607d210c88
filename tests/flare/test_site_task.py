"""Tasks that a site fetches twice, with NVFlare's own bookkeeping of tasks."""

from types import SimpleNamespace

import pytest
from contexts import server_context
from nvflare.apis.client import Client
from nvflare.apis.controller_spec import Task, TaskCompletionStatus
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.wf_comm_server import WFCommServer
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fclseg.engine.messages import Message
from fclseg.flare.controller import RoundController
from fclseg.flare.patches.site_task import SiteTask

SITES = [Client(f"site-{number}", f"token-{number}") for number in (1, 2)]


@pytest.fixture
def server(tmp_path):
    """NVFlare's part of the server that sends tasks and completes them, without its thread."""
    server = WFCommServer()
    server.controller = SimpleNamespace(logger=server.logger)
    context = server_context(tmp_path, get_clients=lambda: SITES)
    server._engine = context.get_engine()
    server._engine.new_context = lambda: context
    return server


def fetch_twice_and_answer(server, context):
    """The first site asks again before it answers, as after a restart."""
    first, second = SITES
    name, number, _ = server.process_task_request(first, context)
    assert server.process_task_request(first, context)[:2] == (name, number), "it gets the same task again"
    server.process_submission(first, name, number, Shareable(), context)
    server.check_tasks()
    name, number, _ = server.process_task_request(second, context)
    server.process_submission(second, name, number, Shareable(), context)
    server.check_tasks()


def send(server, kind, context):
    tasks = [kind("pretrain", Shareable(), timeout=60) for _ in SITES]
    for task, site in zip(tasks, SITES, strict=True):
        server.send(task, context, targets=[site])
    return tasks


def test_a_task_can_be_fetched_twice(server):
    tasks = send(server, SiteTask, FLContext())
    fetch_twice_and_answer(server, FLContext())
    assert [task.completion_status for task in tasks] == [TaskCompletionStatus.OK] * 2
    assert server._tasks == [] and server._client_task_map == {}


def test_nvflare_itself_still_fails():
    """If this test fails, NVFlare has been repaired, and ``SiteTask`` is no longer needed."""
    server = WFCommServer()
    send(server, Task, FLContext())
    with pytest.raises(KeyError):
        fetch_twice_and_answer(server, FLContext())


def test_the_controller_sends_tasks_that_can_be_fetched_twice(monkeypatch):
    sent = []
    controller = RoundController({"job": "fedbyol"})

    def send(task, fl_ctx, targets):
        sent.append(task)
        task.completion_status = TaskCompletionStatus.OK

    monkeypatch.setattr(controller, "send", send)
    controller._ask("pretrain", {"site-1": Message({}, {}, None, {})}, 60, print, Signal(), FLContext())
    assert [type(task) for task in sent] == [SiteTask]
