"""NVFlare's own context in a party's process: its name, its workspace, and whether this is a simulation."""

import json
from pathlib import Path
from types import SimpleNamespace

from nvflare.apis.fl_constant import FLContextKey, ProcessType, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.workspace import Workspace

from fclseg.flare.classes import SITE_CLASSES, resources
from fclseg.flare.wire import SIMULATED_JOB

LEAD = "lead@coordinator.org"


def site_context(workspace: Path, site: str = "site-1", simulated: bool = False, **engine) -> FLContext:
    """What NVFlare hands to everything that runs at a site, with the kit that our provisioning makes."""
    context = _context(workspace, "job-4711", ProcessType.CLIENT_JOB, site, engine)
    if simulated:  # the flag that only the simulator's worker process sets
        context.put(FLContextKey.SIMULATE_MODE, True, private=True, sticky=False)
    return context


def server_context(workspace: Path, simulated: bool = False, **engine) -> FLContext:
    job_id = SIMULATED_JOB if simulated else "job-4711"
    return _context(workspace, job_id, ProcessType.SERVER_JOB, "server", engine)


def _context(workspace: Path, job_id: str, process: str, name: str, engine: dict) -> FLContext:
    for folder in ("startup", "local"):
        (workspace / folder).mkdir(parents=True, exist_ok=True)
    kit = workspace / "local" / "resources.json"
    if not kit.exists():
        kit.write_text(json.dumps(resources(SITE_CLASSES)))
    objects = Workspace(str(workspace), name)
    context = FLContext()
    for key, value in {
        ReservedKey.ENGINE: SimpleNamespace(get_workspace=lambda: objects, fire_event=lambda *event: None, **engine),
        ReservedKey.IDENTITY_NAME: name,
        ReservedKey.RUN_NUM: job_id,
        ReservedKey.PROCESS_TYPE: process,
        FLContextKey.WORKSPACE_ROOT: str(workspace),
        FLContextKey.JOB_META: {JobMetaKey.SUBMITTER_NAME: LEAD},
    }.items():
        context.put(key, value, private=True, sticky=False)
    return context
