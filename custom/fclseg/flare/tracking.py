"""Experiment trackers that a run can write its curves to, beside TensorBoard."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fclseg.errors import FCLSegError


@dataclass(frozen=True)
class Tracker:
    receiver: str
    """The component of the job that writes the curves, on the server."""
    package: str
    """What it imports; the extra of the package that installs it has the tracker's name."""


TRACKERS = {
    "mlflow": Tracker("fclseg.flare.mlflow_curves.MlflowCurves", "mlflow"),
    "wandb": Tracker("fclseg.flare.wandb_curves.WandbCurves", "wandb"),
}


def check_tracker_installed(name: str | None) -> None:
    """On the machine where the server runs."""
    if name is not None and importlib.util.find_spec(TRACKERS[name].package) is None:
        raise FCLSegError(f'{TRACKERS[name].package} is not installed: run pip install "fclseg[{name}]"')


def add_tracker(document: dict[str, Any], name: str | None, arguments: Mapping[str, Any]) -> None:
    """Add the tracker to the server's part of a job, unless the job has it already."""
    if name is None:
        return
    entry = {"id": name, "path": TRACKERS[name].receiver, "args": dict(arguments)}
    if entry["path"] not in [component["path"] for component in document["components"]]:
        document["components"].append(entry)
