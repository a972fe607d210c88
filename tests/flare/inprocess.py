"""A run with NVFlare's adapters in this process: the real executors, learners and filters of real sites with policies,
without a network between them. ``fclseg.engine.in_process`` is the transport without NVFlare."""

import importlib
import json
import tempfile
from pathlib import Path
from typing import ClassVar

from contexts import site_context
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal

from fclseg.engine.messages import PRETRAIN_TASK
from fclseg.engine.meter import DOWN, UP, Meter
from fclseg.engine.place import LOCAL_FILE
from fclseg.engine.rounds import RunLoop
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.state_files import read_state
from fclseg.flare import jobs
from fclseg.flare.executor import SiteExecutor
from fclseg.flare.learner import SiteLearner
from fclseg.flare.wire import read_result, to_shareable
from fclseg.hospital.policy import EVERYTHING
from fclseg.methods.exchange import get_row

TINY = {"channels": [2, 4], "hidden": 4, "bank_size": 8, "batch_size": 8}
SITES = ("site-1", "site-2", "site-3")
SLICES = tempfile.TemporaryDirectory(prefix="fclseg-slices-")
"""The pre-processed slices of all runs of these tests: most have the same patients."""


class InProcess:
    """``absent``: {site: rounds in which it does not answer}; ``broken``: {(site, task, round)} that fail."""

    policy: ClassVar = {
        "changes": [*TINY, "epoch_share", "ema_momentum", "calibration_rounds", "finetuning.start_share"],
        "components": sorted(EVERYTHING),
    }

    def __init__(self, folder: Path, data: dict[str, Path], job: str, cache: Path | None = None, **settings):
        self.folder, self.sites = folder, sorted(data)
        self.settings = RunSettings.read({"job": job, "changes": TINY, **settings}, {})
        self.absent: dict[str, set[int]] = {}
        self.broken: set[tuple[str, str, int]] = set()
        self.dies_in: int | None = None  # the round in which the server's process ends
        self.asked: list[tuple[str, int, list[str]]] = []  # task, round, sites
        self.run = folder / "server" / "runs" / self.settings.run
        self._cache = cache or Path(SLICES.name)
        for site, path in data.items():
            local = folder / site / LOCAL_FILE
            local.parent.mkdir(parents=True)
            local.write_text(json.dumps({"data": str(path), "cache": str(self._cache), "policy": self.policy}))
        self.start()

    def start(self) -> None:
        """New processes everywhere, as after a crash; all memory is on disk."""
        row = get_row(self.settings.job)
        run_folder = RunFolder(self.run)
        run_folder.open({"settings": self.settings.to_dict()}, fresh=False)
        self.meter = Meter()
        self.loop = RunLoop(self.settings, run_folder, self.sites, self.meter)
        self.attendance = self.loop.attendance
        settings = self.settings.to_dict()
        self._site = {site: _SiteProcess(row, settings, site, self.folder / site) for site in self.sites}

    def complete(self) -> list[dict]:
        """Run to the end; the lines of ``rounds.jsonl``."""
        self.loop.run(self.ask, lambda text: None)
        return self.loop.folder.rounds()

    def ask(self, task, messages, timeout, accept) -> dict[str, str]:
        """The same as the controller's, one site after the other."""
        failures, number = {}, next(message.round_number for message in messages.values())
        if number == self.dies_in:
            raise KeyboardInterrupt
        self.asked.append((task, number, sorted(messages)))
        for site, message in messages.items():
            if number in self.absent.get(site, ()):
                failures[site] = f"{site} fetched no task"
                self.attendance.fell_silent(site)
                continue
            try:
                accept(site, self._exchange(site, task, message, (site, task, number) in self.broken))
            except Exception as error:
                failures[site] = str(error)
        if task == PRETRAIN_TASK:
            for site in self.sites:
                if number + 1 not in self.absent.get(site, ()):
                    self.attendance.heard(site)
        return failures

    def _exchange(self, site, task, message, broken):
        data = to_shareable(message)
        self.meter.count(DOWN, site, message.payload())
        result = read_result(self._site[site].execute(task, data, broken))
        self.meter.count(UP, site, result.payload())
        return result

    def state(self, site: str, round_number: int) -> dict:
        """What the site has stored for a round."""
        return read_state(self.memory(site) / f"round-{round_number:04d}.safetensors")[0]["method"]

    def memory(self, site: str) -> Path:
        return self.folder / site / "runs" / self.settings.run / "sites" / site


class _SiteProcess:
    """One site's end of a job: filters, executor and learner as its configuration names them."""

    def __init__(self, row, settings: dict, site: str, workspace: Path):
        document = jobs.client(row, settings)
        learner = SiteLearner()
        self._context = site_context(workspace, site, get_component=lambda name: learner, get_all_components=dict)
        self._incoming = _filters(document["task_data_filters"], self._context)
        self._outgoing = _filters(document["task_result_filters"], self._context)
        self._executor = SiteExecutor("learner")

    def execute(self, task, data, broken):
        data = self._incoming(task, data)
        if broken:
            data = type(data)()  # not a message: the learner refuses it with its own error
        return self._outgoing(task, self._executor.execute(task, data, self._context, Signal()))


def _filters(chains: list[dict], context: FLContext):
    """A function that applies a configuration's filters to a task's data or result."""
    built = []
    for chain in chains:
        for entry in chain["filters"]:
            module, _, name = entry["path"].rpartition(".")
            built.append((chain["tasks"], getattr(importlib.import_module(module), name)(**entry["args"])))

    def apply(task, shareable):
        for tasks, filter_ in built:
            shareable = filter_.process(shareable, context) if task in tasks else shareable
        return shareable

    return apply
