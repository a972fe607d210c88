"""Writes NVFlare jobs from the exchange plan: ``python -m fclseg.flare.jobs jobs`` makes the committed ones.

A job is configuration only. The package is installed at every site, so a hospital does not have to allow foreign code:
its startup kit lists the classes that a job may name (``classes.py``), and none of them takes a path or a name from the
job. NVFlare's own kits and a simulator that is started by hand have no such list. They instantiate classes of installed
packages only for jobs that have a folder ``custom``, so the committed jobs have one, without code.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fclseg.engine.job_defaults import defaults
from fclseg.engine.messages import DISTANCE_TASK, PRETRAIN_TASK, SUM_TASK
from fclseg.engine.run_settings import RunSettings
from fclseg.federation.payload import component_arrays
from fclseg.federation.states import array_bytes
from fclseg.flare.classes import CUSTOM, NO_CODE, NOTE
from fclseg.flare.tracking import add_tracker
from fclseg.methods.exchange import ROWS, Row

CONTROLLER = "controller"
OF_RUN = {"controller_id": CONTROLLER}
"""Arguments of the components that write curves: the controller knows the run's folder."""

TASK_REQUEST_SECONDS = 0.1
"""How often an idle site asks for work."""
CELL_SECONDS = 60.0
CLIENT_TIMES = {
    "default_task_fetch_interval": TASK_REQUEST_SECONDS,
    "runner_sync_timeout": 10.0,
    "max_runner_sync_timeout": 600.0,
    "notify_cp_msg_timeout": 15.0,
    "notify_cp_retry_timeout": 300.0,
    "get_task_timeout": 30.0,
    "task_check_timeout": 15.0,
    "cell_wait_timeout": CELL_SECONDS,
}
"""NVFlare's time-outs in seconds. Its own values (2 to 60) make a start fail on a busy machine. A single message can
still be lost, so the time-outs for single messages are short enough to resend them soon."""
SUBMIT_SECONDS, SLOWEST_LINK = 30.0, 1e6 / 8
"""How long a site waits for the receipt of its result: this time, and that of its bytes at so many bytes per second."""


def meta(row: Row, settings: Mapping[str, Any]) -> dict[str, Any]:
    """For NVFlare's scheduler: a job waits until as many sites are connected as a round needs answers."""
    fewest = settings.get("min_sites", 1)
    return {"name": row.job, "resource_spec": {}, "min_clients": fewest, "deploy_map": {"app": ["@ALL"]}}


def server(row: Row, settings: Mapping[str, Any]) -> dict[str, Any]:
    document = {
        "format_version": 2,
        "server": {"heart_beat_timeout": 600, "task_request_interval": TASK_REQUEST_SECONDS},
        "cell_wait_timeout": CELL_SECONDS,
        "workflows": [
            {
                "id": CONTROLLER,
                "path": "fclseg.flare.controller.RoundController",
                "args": {"settings": {"job": row.job, **settings}},
            }
        ],
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [
            {
                "id": "curves",
                "path": "fclseg.flare.tensorboard.RunCurves",
                "args": OF_RUN,
            }
        ],
    }
    add_tracker(document, settings.get("tracking"), OF_RUN)
    return document


def client(row: Row, settings: Mapping[str, Any]) -> dict[str, Any]:
    tasks = [DISTANCE_TASK] * row.predicts_distance + [PRETRAIN_TASK] + [SUM_TASK] * bool(settings.get("sums_only"))
    return {
        "format_version": 2,
        **CLIENT_TIMES,
        "submit_task_result_timeout": submit_seconds(row, settings),
        "executors": [
            {
                "tasks": tasks,
                "executor": {"path": "fclseg.flare.executor.SiteExecutor", "args": {"learner_id": "learner"}},
            }
        ],
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [
            {"id": "learner", "path": "fclseg.flare.learner.SiteLearner", "args": {}},
            {"id": "curves", "path": "fclseg.flare.curves.SiteCurves", "args": {}},
        ],
    }


def submit_seconds(row: Row, settings: Mapping[str, Any]) -> float:
    """The server sends its receipt after it has fetched the whole upload. Without one NVFlare repeats the upload."""
    preset = RunSettings.read({**settings, "job": row.job}, {}).build_preset()
    largest = sum(array_bytes(arrays) for arrays in component_arrays(row, preset).values())
    return SUBMIT_SECONDS + math.ceil(largest / SLOWEST_LINK)


def with_filters(sites: dict[str, Any], filters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The sites' configuration with filters on what they send."""
    chain = {"tasks": [PRETRAIN_TASK], "filters": list(filters)}
    return sites | {"task_result_filters": [chain]} if filters else sites


def files(
    row: Row, settings: Mapping[str, Any], simulator: bool = True, filters: Sequence[Mapping[str, Any]] = ()
) -> dict[str, str]:
    """{relative path: text} of all files of a job, for the simulator or for real sites."""
    documents = {
        "meta.json": meta(row, settings),
        "app/config/config_fed_server.json": server(row, settings),
        "app/config/config_fed_client.json": with_filters(client(row, settings), filters),
    }
    texts = {path: json.dumps(document, indent=2) + "\n" for path, document in documents.items()}
    return texts | {f"{CUSTOM}/{NOTE}": NO_CODE} if simulator else texts


def write_job(
    folder: Path,
    row: Row,
    settings: Mapping[str, Any],
    simulator: bool = True,
    filters: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write the job of a row into ``folder``, whose name is the job's; ``filters`` act on what the sites send."""
    for path, text in files(row, settings, simulator, filters).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fclseg.flare.jobs", description="Write the NVFlare jobs.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("jobs"))
    parser.add_argument(
        "--real-sites", action="store_true", help="write jobs for provisioned sites instead of the simulator"
    )
    parser.add_argument(
        "--min-sites", type=int, default=1, metavar="K", help="number of sites needed to start and for each round"
    )
    arguments = parser.parse_args()
    for job, row in ROWS.items():
        settings = {**defaults(row), "min_sites": arguments.min_sites}
        write_job(arguments.folder / job, row, settings, simulator=not arguments.real_sites)


if __name__ == "__main__":
    main()
