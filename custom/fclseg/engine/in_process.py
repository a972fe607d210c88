"""All sites of a run in this process, one after the other: the transport without a network.

It runs the same loop and the same work as NVFlare's sites, so that both end with the same networks, bit for bit.
"""

import os
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fclseg.engine.gate import OpenGate
from fclseg.engine.memory import VolatileMemory
from fclseg.engine.messages import PRETRAIN_TASK, Message
from fclseg.engine.meter import DOWN, UP, Meter
from fclseg.engine.model import GlobalModel
from fclseg.engine.place import Place, check_site_name
from fclseg.engine.rounds import RunLoop, RunStore
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.site import Site
from fclseg.engine.site_work import answer, measure, train
from fclseg.errors import FCLSegError
from fclseg.methods.base import Method
from fclseg.networks.interface import EncoderFactory


class InProcess:
    """A run whose sites are objects of this process.

    ``absent`` says in which rounds a site does not answer. A site that cannot do a task is left out of the round, as
    with NVFlare; an error that is not for users ends the run.
    """

    def __init__(
        self,
        settings: RunSettings,
        record: RunStore,
        sites: Mapping[str, Site],
        shared: Mapping[str, str | None] | None = None,
        encoder: EncoderFactory | None = None,
    ):
        self.settings, self.sites = settings, sites
        self.loop = RunLoop(settings, record, sorted(sites), Meter(), shared, encoder)
        self.absent: Mapping[str, Container[int]] = {}

    def run(
        self,
        log: Callable[[str], None] = lambda text: None,
        after_round: Callable[[dict[str, Any]], None] = lambda record: None,
    ) -> None:
        """All rounds that are left."""
        self.loop.run(self.ask, log, after_round)

    def ask(
        self, task: str, messages: dict[str, Message], timeout: int, accept: Callable[[str, Message], None]
    ) -> dict[str, str]:
        """The sites that failed, and why. Nobody is waited for, so the time-out is not used."""
        failures: dict[str, str] = {}
        attendance = self.loop.attendance
        for site, message in messages.items():
            if message.round_number in self.absent.get(site, ()):
                failures[site] = f"{site} fetched no task"
                attendance.fell_silent(site)
                continue
            try:
                accept(site, self._exchange(site, task, message))
            except FCLSegError as error:
                failures[site] = str(error)
        if task == PRETRAIN_TASK:
            following = self.loop.model.next_round + 1
            for site in [site for site in sorted(attendance.silent) if following not in self.absent.get(site, ())]:
                attendance.heard(site)
        return failures

    def _exchange(self, name: str, task: str, message: Message) -> Message:
        self.loop.meter.count(DOWN, name, message.payload())
        gate = OpenGate(self.sites[name], task, message)
        result = answer(gate, train if task == PRETRAIN_TASK else measure)
        self.loop.meter.count(UP, name, result.payload())
        return result


def run_in_process(
    settings: RunSettings,
    folder: RunFolder,
    names: Sequence[str],
    shared: Mapping[str, str | None],
    *,
    encoder: EncoderFactory | None = None,
    **watching: Callable[..., Any],
) -> None:
    """Run a job on the sites ``names``, or continue it. ``shared`` are the folders of a simulation (``data``,
    ``splits``, ...); the run's folder has the same content as that of a simulation with NVFlare."""
    with folder.held():
        folder.clear_failure()
        open_in_process(settings, folder, names, shared, encoder).run(**watching)


def open_in_process(
    settings: RunSettings,
    folder: RunFolder,
    names: Sequence[str],
    shared: Mapping[str, str | None],
    encoder: EncoderFactory | None = None,
) -> InProcess:
    """The sites read the folder of images once for all of them."""
    from fclseg.anatomy.folders import read_folder

    sites, read = sorted(check_site_name(name) for name in names), cache(read_folder)
    shared = {"runs": str(folder.path.parent), **shared}
    folder.start(settings, sites, shared)

    def join(name: str) -> Site:
        place = Place(name, folder.path, simulated=True, shared=shared)
        site = Site(place, settings, folder.config["id"], sites, encoder)
        site.read = read  # type: ignore[method-assign]
        return site

    return InProcess(settings, folder, {name: join(name) for name in sites}, shared, encoder)


@dataclass
class UnsavedRun:
    """A run without a folder, which is repeated if it is interrupted."""

    path: Path = Path(os.devnull)
    config: dict[str, Any] = field(default_factory=lambda: {"id": uuid.uuid4().hex})
    records: list[dict[str, Any]] = field(default_factory=list)
    complete: bool = False
    encoders: dict[str, Path] = field(default_factory=dict)

    def load(self, initial: GlobalModel) -> GlobalModel:
        return initial

    def save(self, model: GlobalModel, record: dict[str, Any]) -> None:
        self.records.append(record)

    def finish(self, encoder: Method | None, settings: RunSettings) -> None:
        self.complete = True


def open_unsaved(settings: RunSettings, samplers: Mapping[str, Any], device: str | None = None) -> InProcess:
    """A run without a folder, whose sites have these batches (``SliceSampler``)."""
    run = UnsavedRun()

    def join(name: str) -> Site:
        place = Place(check_site_name(name), Path(os.devnull), simulated=True, shared={"device": device})
        site = Site(place, settings, run.config["id"], sorted(samplers))
        site.sampler, site.memory = samplers[name], VolatileMemory()
        return site

    return InProcess(settings, run, {name: join(name) for name in samplers})
