"""The private parts of NVFlare that are replaced or used are what we take them for, and nothing changes on import."""

import inspect
import subprocess
import sys
import threading

import pytest
import torch
from nvflare.apis.controller_spec import Task
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.streaming import stream_utils
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.utils.config_service import ConfigService
from nvflare.job_config.api import FedJob
from nvflare.private.fed.app.simulator import simulator_runner
from nvflare.private.fed.client.client_app_runner import ClientAppRunner
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.private.fed.server.job_cmds import CLONED_META_KEYS
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator
from nvflare.private.fed.server.job_runner import JobRunner
from nvflare.private.fed.server.server_command_agent import ServerCommandAgent
from nvflare.widgets.fed_event import FedEventRunner

from fclseg.errors import FCLSegError
from fclseg.flare import patches
from fclseg.flare.runs.keeper import OUTCOME_SECONDS, OUTCOME_VARIABLE


def _arguments(function):
    return list(inspect.signature(function).parameters)


def test_importing_changes_nothing():
    code = """
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.private.fed.server.fed_server import FederatedServer
before = RxTask._schedule_remove_task, FederatedServer.client_heartbeat
import fclseg.flare.controller, fclseg.flare.executor, fclseg.flare.runs.keeper
assert before == (RxTask._schedule_remove_task, FederatedServer.client_heartbeat)
from fclseg.flare.executor import SiteExecutor
SiteExecutor("learner")
assert before[0] != RxTask._schedule_remove_task and before[1] == FederatedServer.client_heartbeat
from nvflare.private.fed.client.client_app_runner import ClientAppRunner
from nvflare.widgets.fed_event import FedEventRunner
assert hasattr(ClientAppRunner.notify_job_status, "__wrapped__") and hasattr(FedEventRunner._receive, "__wrapped__")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_another_version_of_nvflare_is_refused_in_one_sentence(monkeypatch):
    patches.check_nvflare()
    monkeypatch.setattr(patches.metadata, "version", lambda name: "2.10.1")
    with pytest.raises(FCLSegError, match=r"private parts of NVFlare 2\.9\.0, but 2\.10\.1 is installed: pip install"):
        patches.check_nvflare()


def test_stream_timers_replace_what_a_stream_has():
    original = inspect.unwrap(RxTask._schedule_remove_task)
    assert _arguments(original) == ["self", "ttl"] or original.__module__.startswith("fclseg")
    source = inspect.getsource(RxTask)
    for name in (
        "cleanup_timer",
        "completed_task_ttl",
        "stop_lock",
        "received_offset",
        "offset_ack",
        "seq_ack",
        "chunks",
    ):
        assert f"self.{name}" in source
    assert isinstance(RxTask.rx_task_map, dict) and isinstance(RxTask.map_lock, type(threading.Lock()))
    assert callable(RxTask._remove_task) and _arguments(RxTask._send_ack) == ["self", "offset", "seq"]


def test_the_simulator_uses_the_modules_and_the_method_that_are_replaced():
    assert simulator_runner.subprocess is subprocess and hasattr(simulator_runner.time, "sleep")
    do_one_task = simulator_runner.SimulatorClientRunner.do_one_task
    assert _arguments(do_one_task)[:2] == ["self", "client"]
    assert "subprocess.Popen(" in inspect.getsource(simulator_runner) and isinstance(stream_utils.sid_base, int)


def test_a_tasks_sendings_are_a_list_that_can_be_replaced():
    assert Task("pretrain", Shareable()).client_tasks == []


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (ServerCommandAgent, "_execute_command"),
        (ServerCommandAgent, "_aux_communicate"),
        (FederatedServer, "client_heartbeat"),
    ],
)
def test_messages_whose_sender_is_named_arrive_there(owner, name):
    assert _arguments(inspect.unwrap(getattr(owner, name))) == ["self", "request"]


def test_events_of_other_parties_arrive_there_and_are_fired_whatever_they_are():
    assert _arguments(inspect.unwrap(FedEventRunner._receive)) == ["self", "topic", "request", "fl_ctx"]
    assert "message_handle_func=self._receive" in inspect.getsource(FedEventRunner.handle_event)


def test_a_jobs_process_asks_its_parent_through_its_clients_cell_and_never_gives_up():
    original = inspect.unwrap(ClientAppRunner.notify_job_status)
    assert _arguments(original) == ["self", "federated_client", "job_id", "status", "timeout", "retry_timeout"]
    source = inspect.getsource(original)
    assert source.count("federated_client") == source.count("federated_client.cell.") + 2  # an argument, and in the doc
    assert "while True" in source and "break" not in source and "raise" not in source


def test_jobs_are_validated_at_submission_with_their_archive():
    assert _arguments(inspect.unwrap(JobMetaValidator.validate)) == ["self", "job_name", "job_data"]


def test_the_server_waits_for_a_dead_site_as_long_as_the_public_variable_says(tmp_path, monkeypatch):
    monkeypatch.setattr(ConfigService, "_var_values", {})
    monkeypatch.setenv(OUTCOME_VARIABLE, str(OUTCOME_SECONDS))
    assert JobRunner(workspace_root=str(tmp_path)).client_outcome_wait_timeout == OUTCOME_SECONDS
    assert callable(JobRunner.update_unfinished_jobs) and len(CLONED_META_KEYS) > 0


def test_a_recipes_job_collects_its_apps_where_ours_has_none():
    assert _arguments(FedJob._set_all_apps) == ["self"]
    for public in (FedJob.export_job, FedJob.simulator_run):
        assert "self._set_all_apps()" in inspect.getsource(public)


def test_torch_loads_the_buffers_of_a_module_where_a_bank_resizes_them():
    assert _arguments(torch.nn.Module._load_from_state_dict)[:3] == ["self", "state_dict", "prefix"]
    assert "module._load_from_state_dict(" in inspect.getsource(torch.nn.Module.load_state_dict)
