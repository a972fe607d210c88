"""A job is configuration: it names classes of the allow-list, gives them harmless arguments, and contains no code."""

import importlib
import importlib.util
import inspect
import json
from pathlib import Path

import pytest
from contexts import LEAD
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.workspace import Workspace
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.security.security import FLAuthorizer

from fclseg.engine.job_defaults import defaults
from fclseg.flare.classes import SERVER_CLASSES, SITE_CLASSES, resources
from fclseg.flare.jobs import client, server
from fclseg.flare.kits.provisioning import PERMISSIONS
from fclseg.flare.tracking import TRACKERS
from fclseg.methods.exchange import ROWS

OPTIONAL = {tracker.receiver: tracker.package for tracker in TRACKERS.values()}
"""Classes that need a package which is not always installed."""
FOREIGN = (
    "fclseg.finetune.train.train",  # its overrides are expressions of MONAI
    "fclseg.cli.main",  # starts a simulator, and with it any job
    "fclseg.files.write_text",  # writes anywhere
    "fclseg.flare.executor.os.system",
    "fclseg.flare.launch.simulate",
    "fclseg.flare.filters.dp.WithholdBetweenCalibrations",  # gone
    "os.system",
    "builtins.eval",
    "subprocess.Popen",
    "monai.bundle.run",
    "nvflare.app_common.logging.job_log_streamer.JobLogStreamer",  # sends log files away
    "nvflare.app_common.widgets.convert_to_fed_event.ConvertToFedEvent",  # sends any event, lines of the log too
    "nvflare.app_common.launchers.subprocess_launcher.SubprocessLauncher",
    "nvflare.app_common.executors.client_api_launcher_executor.ClientAPILauncherExecutor",
)


@pytest.fixture(params=["site", "server"])
def party(request, tmp_path):
    """NVFlare's own check of the classes that a job may use, with the allow-list of a party's kit."""
    for folder in ("startup", "local"):
        (tmp_path / folder).mkdir()
    own, other = (SITE_CLASSES, SERVER_CLASSES) if request.param == "site" else (SERVER_CLASSES, SITE_CLASSES)
    (tmp_path / "local" / "resources.json").write_text(json.dumps(resources(own)))
    workspace, authorizer = Workspace(str(tmp_path), "site-1"), ComponentPathAuthorizer()

    def build(path):
        authorizer.authorize_component_config({"path": path, "args": {}}, workspace=workspace)

    build.own, build.other = own, other
    return build


@pytest.mark.parametrize("path", FOREIGN)
def test_nothing_else_is_built(party, path):
    with pytest.raises(UnsafeComponentError, match="is not in allow_list"):
        party(path)


def test_what_a_listed_class_contains_cannot_be_named():
    """NVFlare lets "<class>.<anything>" pass its list, and then fails to import the class as a module. Modules of
    trackers fail before that if their packages are not installed."""
    for path in SITE_CLASSES + SERVER_CLASSES:
        with pytest.raises(ModuleNotFoundError, match=r"is not a package|No module named '(mlflow|wandb)'"):
            importlib.import_module(path)


def test_the_listed_classes_are_built_and_each_only_by_its_party(party):
    for path in party.own:
        party(path)
    for path in party.other:
        with pytest.raises(UnsafeComponentError):
            party(path)


def _paths(element):
    if isinstance(element, dict):
        found = [element["path"]] if "path" in element else []
        return found + [path for value in element.values() for path in _paths(value)]
    return [path for value in element for path in _paths(value)] if isinstance(element, list) else []


def test_the_committed_jobs_name_listed_classes_and_no_listed_class_is_superfluous():
    jobs = Path(__file__).parents[2] / "jobs"
    for name, listed in (("client", SITE_CLASSES), ("server", SERVER_CLASSES)):
        files = list(jobs.glob(f"*/app/config/config_fed_{name}.json"))
        named = {path for file in files for path in _paths(json.loads(file.read_text()))}
        assert len(files) == len(ROWS) and named <= set(listed)
        assert set(listed) - named <= {"fclseg.flare.filters.ClipAndNoise", *OPTIONAL}  # a job may add them


def test_listed_classes_are_classes_and_take_no_path_name_or_expression_from_a_job():
    harmless = {"self", "settings", "learner_id", "controller_id", "clip", "sigma"}
    for path in SITE_CLASSES + SERVER_CLASSES:
        module, _, name = path.rpartition(".")
        if importlib.util.find_spec(OPTIONAL.get(path, "fclseg")) is None:
            continue
        built = getattr(importlib.import_module(module), name)
        assert inspect.isclass(built) and built.__module__ == module
        assert set(inspect.signature(built.__init__).parameters) <= harmless, path


def test_jobs_say_nothing_about_who_and_where_a_party_is():
    for row in ROWS.values():
        text = json.dumps([client(row, defaults(row)), server(row, defaults(row))])
        assert not {word for word in ("WORKSPACE", "JOB_ID", "SITE_NAME") if word in text}


@pytest.fixture(params=["coordinator", "hospital_a"])
def authorizer(request):
    return FLAuthorizer(request.param, {"format_version": "1.0", "permissions": PERMISSIONS})


@pytest.mark.parametrize("role", list(PERMISSIONS))
@pytest.mark.parametrize("right", ["byoc", "cat", "grep", "head", "ls", "pwd", "tail", "clone_job"])
def test_nobody_brings_code_or_types_commands(authorizer, role, right):
    for org in ("coordinator", "hospital_a"):
        user = Person("somebody@coordinator.org", org, role)
        assert not authorizer.authorize(AuthzContext(right, user, user))[0]


def test_a_lead_submits_and_downloads_its_own_and_nothing_else(authorizer):
    lead, other = Person(LEAD, "coordinator", "lead"), Person("other@coordinator.org", "coordinator", "lead")

    def may(right, submitter):
        return authorizer.authorize(AuthzContext(right, lead, submitter))[0]

    assert {right for right in ("submit_job", "download_job", "get_job_meta") if may(right, lead)} == {
        "submit_job",
        "download_job",
        "get_job_meta",
    }
    assert not may("download_job", other) and not may("get_job_meta", other)
    for right in ("abort_job", "delete_job", "list_jobs", "show_errors", "check_status", "sys_info", "shutdown"):
        assert not may(right, lead), right
    for right in ("configure_job_log", "configure_site_log", "report_env", "call", "restart", "remove_client"):
        assert not may(right, lead), right
