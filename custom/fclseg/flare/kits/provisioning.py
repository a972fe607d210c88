"""Startup kits in which the hospital decides: a builder for ``nvflare provision`` and ``nvflare package``.

    builders:
      ...
      - path: nvflare.lighter.impl.static_file.StaticFileBuilder
      - path: fclseg.flare.kits.provisioning.HospitalKits        # after the static files, before the signatures

NVFlare's own kits allow the following by default, and these do not: classes outside the package's allow-list, code in
a job, shell commands, log files that are sent to the server, and a job store in the shared temporary folder.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nvflare.lighter.constants import ProvFileName
from nvflare.lighter.ctx import ProvisionContext
from nvflare.lighter.entity import Participant, Project
from nvflare.lighter.spec import Builder

from fclseg.engine.place import LOCAL_FILE
from fclseg.errors import FCLSegError
from fclseg.flare.classes import SERVER_CLASSES, SITE_CLASSES, resources
from fclseg.hospital.policy import SAMPLE

NOBODY, EVERYBODY, OWN_JOBS, OWN_SITE = "none", "any", "n:submitter", "o:site"
_NO_CODE = {"byoc": NOBODY, "shell_commands": NOBODY, "server-predeployed-flwr": NOBODY, "clone_job": NOBODY}

PERMISSIONS = {
    "project_admin": {**_NO_CODE, "submit_job": NOBODY, "download_job": NOBODY, "manage_job": EVERYBODY}
    | {"view": EVERYBODY, "operate": OWN_SITE},
    "org_admin": {**_NO_CODE, "submit_job": NOBODY, "download_job": NOBODY, "manage_job": NOBODY}
    | {"view": EVERYBODY, "operate": OWN_SITE},
    "lead": {**_NO_CODE, "submit_job": EVERYBODY, "download_job": OWN_JOBS, "manage_job": NOBODY}
    | {"view": NOBODY, "get_job_meta": OWN_JOBS, "operate": NOBODY},
    "member": {**_NO_CODE, "submit_job": NOBODY, "download_job": NOBODY, "manage_job": NOBODY}
    | {"view": NOBODY, "operate": NOBODY},
}
"""Permissions on the server and at every site. A lead submits jobs, checks their status, and downloads their results.
The coordinator may stop any job, but cannot submit jobs or read results. Nobody may bring code."""

ALONE = PERMISSIONS | {
    "project_admin": PERMISSIONS["project_admin"]
    | {"submit_job": EVERYBODY, "download_job": OWN_JOBS, "operate": EVERYBODY}
}
"""On one machine, for one person: the coordinator is also the lead and stops every party (``nvflare poc stop``)."""

STREAMING = {
    "streaming_chunk_size": 256 * 1024,
    "streaming_ack_interval": 512 * 1024,
    "streaming_window_size": 4 * 1024 * 1024,
    "streaming_retry_wait": 60.0,
    "streaming_retry_timeout": 900.0,
}
"""NVFlare sends in parts, and sends a part again if no receipt comes. Its defaults (a receipt for every 16 MB, repeated
after 5 s, given up after 60 s) fail on a slow line: at 2 Mbit/s, 16 MB take 64 s. With these values up to 4 MB are
under way at any time, so that links from 0.6 Mbit/s work. This does not slow down fast links."""

CONNECTION = {"engine_create_timeout": 10 * 365 * 86400.0, "communication_timeout": 30.0}
"""Seconds that a site's process waits for its own connection, and for the first byte of an answer. NVFlare's 30 for the
first are too few: a site that starts while the server is down registers later but never gets a task, as its command
channel has given up by then. NVFlare's 300 for the second are too many: if the network is cut for a moment while the
server answers a request for work, the site waits that long for the lost answer."""

KEEPER = {"id": "run_keeper", "path": "fclseg.flare.runs.keeper.RunKeeper", "args": {}}
"""Continues interrupted runs. A component of the server, which no job can name."""
SUBMISSIONS = {"id": "submissions", "path": "fclseg.flare.kits.inspection.Submissions", "args": {}}
"""Refuses jobs at submission."""
VALIDATOR = {"app_validator": {"path": "fclseg.flare.kits.inspection.CodeFree", "args": {}}}
"""Each party checks by itself that a job has no code."""
SCHEDULE = {"max_schedule_count": 1_000_000, "max_schedule_interval": 60.0}
"""A job waits for its sites as long as it takes. NVFlare's scheduler would drop it after ten attempts."""

OPEN_PATH = "export PYTHONPATH=/local/custom:$PYTHONPATH"
CLOSED_PATH = 'export PYTHONSAFEPATH=1 PYTHONPATH="${PYTHONPATH:-}"'

STREAMERS = ("site_log_streamer",)
"""Components of NVFlare's default kits that send a site's log files to the server."""


class HospitalKits(Builder):
    """Rewrites the files that ``StaticFileBuilder`` has written to each party's folder ``local``.

    ``store`` is the absolute path of a folder on the server for jobs and their results. Without it NVFlare stores them
    in the temporary folder that all accounts of the machine share. ``alone`` is for trying things out on one machine.
    """

    def __init__(self, store: str = "", alone: bool = False):
        if store and not os.path.isabs(store):
            raise FCLSegError(f"the server's store '{store}' is not an absolute path: give one in project.yml")
        self._store, self._permissions = store, ALONE if alone else PERMISSIONS

    def build(self, project: Project, ctx: ProvisionContext) -> None:
        if server := project.get_server():
            local = Path(ctx.get_local_dir(server))
            _rewrite(local / ProvFileName.RESOURCES_JSON_DEFAULT, self._server_resources)
            _close_path(Path(ctx.get_kit_dir(server)))
            _authorize(local, self._permissions)
            _set_streaming(local)
        for client in project.get_clients():
            local = Path(ctx.get_local_dir(client))
            _rewrite(local / ProvFileName.RESOURCES_JSON_DEFAULT, _site_resources)
            _authorize(local, self._permissions)
            _set_streaming(local)
            _rewrite(Path(ctx.get_kit_dir(client)) / ProvFileName.FED_CLIENT_JSON, _patient)
            _close_path(Path(ctx.get_kit_dir(client)))
            (local / Path(LOCAL_FILE).name).write_text(SAMPLE, encoding="utf-8")

    def finalize(self, project: Project, ctx: ProvisionContext) -> None:
        """Make private keys readable by their owner only. Runs after the files are in their final place."""
        for participant in project.get_all_participants():
            _close(participant, ctx)
        os.chmod(ctx.get_workspace(), 0o700)  # contains the private key of the project itself

    def _server_resources(self, document: dict[str, Any]) -> dict[str, Any]:
        known = {entry["id"]: entry for entry in document["components"]}
        if self._store:
            document["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = f"{self._store}/snapshots"
            known["job_manager"]["args"]["uri_root"] = f"{self._store}/jobs"
        known["job_scheduler"]["args"] |= SCHEDULE
        components = [*document["components"], KEEPER, SUBMISSIONS]
        return document | resources(SERVER_CLASSES) | VALIDATOR | {"components": components}


def _site_resources(document: dict[str, Any]) -> dict[str, Any]:
    components = [entry for entry in document["components"] if entry["id"] not in STREAMERS]
    return document | resources(SITE_CLASSES) | VALIDATOR | {"components": components}


def _patient(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"client": document["client"] | CONNECTION}


def _rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    if path.exists():  # `nvflare package` builds one party and knows only the names of the others
        path.write_text(json.dumps(change(json.loads(path.read_text())), indent=2) + "\n", encoding="utf-8")


def _authorize(local: Path, permissions: Mapping[str, Any]) -> None:
    if local.is_dir():
        document = {"format_version": "1.0", "permissions": permissions}
        path = local / ProvFileName.AUTHORIZATION_JSON_DEFAULT
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _set_streaming(local: Path) -> None:
    if local.is_dir():
        (local / ProvFileName.COMM_CONFIG).write_text(json.dumps(STREAMING, indent=2) + "\n", encoding="utf-8")


def _close_path(startup: Path) -> None:
    """Python must not import from the folder in which somebody starts a kit. NVFlare's script leaves an empty entry in
    the path, which stands for that folder, and so does ``python -m``."""
    script = startup / "sub_start.sh"
    if script.exists():
        text = script.read_text(encoding="utf-8")
        if OPEN_PATH not in text:
            raise FCLSegError("NVFlare's start script is not the one of 2.9.0: install the version that fclseg needs")
        script.write_text(text.replace(OPEN_PATH, CLOSED_PATH), encoding="utf-8")


def _close(participant: Participant, ctx: ProvisionContext) -> None:
    folder = Path(ctx.get_ws_dir(participant))
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            os.chmod(path, 0o700)
        else:
            os.chmod(path, path.stat().st_mode & 0o700)
