"""Runs a job in NVFlare's simulator as a child process and follows it through the run folder."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from fclseg.documents import UNUSABLE
from fclseg.engine.messages import PRETRAIN_TASK, SUM_TASK
from fclseg.engine.run_folder import SIMULATOR_LOG, RunFolder
from fclseg.environment import TRAINING_ENVIRONMENT
from fclseg.errors import FCLSegError
from fclseg.files import write_text
from fclseg.flare.classes import CUSTOM, NOTE, SERVER_CLASSES, SITE_CLASSES, resources
from fclseg.flare.jobs import OF_RUN
from fclseg.flare.tracking import add_tracker

SERVER_CONFIG, CLIENT_CONFIG = "app/config/config_fed_server.json", "app/config/config_fed_client.json"
RUN_VARIABLES = ("FCLSEG_PRESET", "FCLSEG_ROUNDS", "FCLSEG_SEED", "FCLSEG_RUN", "FCLSEG_FRESH")
SITE_NAME = re.compile(r"[A-Za-z0-9_-]+")
POLL_SECONDS = 0.5
COMMAND = "command"
"""The name under which the command that starts a simulator locks the run folder."""
PICKUP_SECONDS = 180
"""Every site has its own process here, so a site that does not fetch its task for that long has died. On Linux,
``site_restarts`` notices that earlier."""


def read_job(job: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job's server configuration, and the run's settings in it."""
    path = job / SERVER_CONFIG
    try:
        document = json.loads(path.read_text())
        return document, document["workflows"][0]["args"]["settings"]
    except (OSError, *UNUSABLE):
        raise FCLSegError(f"{job} is not an FCLSeg job (no settings in {path}): choose a folder below jobs/") from None


def derive_job(job: Path, folder: Path, changes: Mapping[str, Any]) -> Path:
    """A copy of the job with other settings. Everything else that its owner added, such as filters, stays."""
    document, settings = read_job(job)
    settings.update(changes)
    derived = folder / settings["job"]
    if derived.resolve() != job.resolve():  # a run may be started again from the job in its own folder
        shutil.rmtree(derived, ignore_errors=True)
        shutil.copytree(job, derived)
    add_tracker(document, settings.get("tracking"), OF_RUN)
    (derived / SERVER_CONFIG).write_text(json.dumps(document, indent=2) + "\n")
    if settings.get("sums_only"):
        _add_sum_task(derived / CLIENT_CONFIG)
    _drop_marker(derived)
    return derived


def _add_sum_task(path: Path) -> None:
    """The steps of a secure sum go to the executor that trains; NVFlare ends the run of a site without one."""
    document = json.loads(path.read_text())
    for executor in document["executors"]:
        if PRETRAIN_TASK in executor["tasks"] and SUM_TASK not in executor["tasks"]:
            executor["tasks"].append(SUM_TASK)
    path.write_text(json.dumps(document, indent=2) + "\n")


def _drop_marker(job: Path) -> None:
    """Remove the code folder that only a simulator started by hand needs: here the allow-list of classes decides, as at
    a hospital. Code that the job's owner put there stays, and NVFlare then allows everything."""
    if [path.name for path in (job / CUSTOM).glob("*")] == [NOTE]:
        shutil.rmtree(job / CUSTOM)


def simulate(
    job: Path,
    run: Path,
    sites: Sequence[str],
    places: Mapping[str, str | None],
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Run a job to its end, with one process per site. Raises with the reason if it fails.

    ``run`` is its run folder, and ``places`` has the folder of images and what divides it (``engine.place``). NVFlare's
    own output goes to ``simulator.log``.
    """
    if wrong := [name for name in sites if not SITE_NAME.fullmatch(name)]:
        raise FCLSegError(f"'{wrong[0]}' is not a valid NVFlare site name: use letters, digits, - and _ in the split")
    log, folder = run / SIMULATOR_LOG, RunFolder(run)
    found = {"runs": str(run.parent), **places}
    environment = {f"FCLSEG_{name.upper()}": path for name, path in found.items() if path is not None}
    write_text(run / "workspace" / "local" / "resources.json", json.dumps(resources(SERVER_CLASSES + SITE_CLASSES)))
    command = [sys.executable, "-m", "nvflare.private.fed.app.simulator.simulator", str(job)]
    command += ["-w", str(run / "workspace"), "-c", ",".join(sites), "-t", str(len(sites))]
    with folder.held(COMMAND):
        folder.clear_failure()
        with open(log, "w") as output, _running(command, output, environment) as process:
            while process.poll() is None:
                progress()
                time.sleep(POLL_SECONDS)
    progress()
    if process.returncode:
        reason = folder.failure or f"the simulator ended with code {process.returncode} before the run started"
        raise FCLSegError(f"{reason}; NVFlare's messages are in {log}")
    if not folder.complete:
        raise FCLSegError(f"the run ended before its last round; NVFlare's messages are in {log}")


@contextmanager
def _running(command: list[str], output: IO[Any], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The simulator and all processes it starts. They do not outlive this block."""
    variables = {name: value for name, value in os.environ.items() if name not in RUN_VARIABLES}
    variables |= {**TRAINING_ENVIRONMENT, **environment}
    process = subprocess.Popen(
        command,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=variables,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # the sites' processes notice and end by themselves
            process.wait()
