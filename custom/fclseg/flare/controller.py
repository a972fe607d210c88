"""The one controller: Algorithm 1 on the server, for any row of the exchange plan."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import Task, TaskCompletionStatus
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fclseg.documents import read_json
from fclseg.engine.attendance import Attendance
from fclseg.engine.messages import Message
from fclseg.engine.meter import DOWN, UP
from fclseg.engine.place import Place
from fclseg.engine.rounds import RunLoop
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.run_settings import RunSettings, start_over
from fclseg.engine.simulation import shared_places
from fclseg.engine.sums import trust_of
from fclseg.environment import COMMAND
from fclseg.errors import FCLSegError, PassingError
from fclseg.flare import patches
from fclseg.flare.farewell import say_at_the_end
from fclseg.flare.free_memory import return_free_memory
from fclseg.flare.heartbeat import SILENT_SECONDS, Pulses
from fclseg.flare.meter import WireMeter
from fclseg.flare.patches.fast_simulator import end_simulation, gave_up
from fclseg.flare.patches.site_task import SiteTask
from fclseg.flare.references import check_references
from fclseg.flare.wire import read_result, server_place, to_shareable
from fclseg.methods.exchange import SHIPPED
from fclseg.text import one_line

POLL_SECONDS = 0.05


class RoundController(Controller):
    """The NVFlare part of a run: choosing sites, sending tasks, waiting, and handling sites that fail."""

    def __init__(self, settings: dict[str, Any]):
        patches.apply("server")
        super().__init__(task_check_period=POLL_SECONDS)
        self._given = settings
        self._meter = WireMeter("")
        self._attendance: Attendance | None = None
        self._sent: dict[str, dict[str, int]] = {}  # payload of the task that each site is given
        self._pulses = Pulses()

    @cached_property
    def _settings(self) -> RunSettings:
        """The job's settings. Invalid settings end the run with a one-sentence error."""
        return RunSettings.read(self._given)

    def run_path(self, fl_ctx: FLContext) -> Path:
        return server_place(fl_ctx).runs / self._settings.run

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Does nothing that can fail: errors for the user are raised in ``control_flow``."""
        os.umask(0o077)  # only this account may read runs of real sites and images of a simulation
        self._pulses.listen(fl_ctx)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        self.cancel_all_tasks()
        end_simulation()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.AFTER_TASK_DATA_FILTER:  # a task is sent, perhaps not for the first time
            site = fl_ctx.get_peer_context().get_identity_name()
            self._meter.count(DOWN, site, self._sent.get(site, {}))
        if event_type == EventType.BEFORE_PROCESS_TASK_REQUEST and self._attendance:
            site = fl_ctx.get_peer_context().get_identity_name()
            if self._attendance.heard(site):
                self.log_info(fl_ctx, f"{site} is asking for work again and takes part again")

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        with suppress(FCLSegError):
            self._meter.count(UP, client.name, read_result(result).payload())
        self.log_info(fl_ctx, f"{client.name} answered task {task_name} too late; the result is not used")

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        try:
            self._check_job(fl_ctx)
            folder = RunFolder(self.run_path(fl_ctx))
            with folder.held(purpose=f"job {fl_ctx.get_job_id()}"):
                folder.clear_failure()
                try:
                    self._run(folder, abort_signal, fl_ctx)
                except (FCLSegError, OSError) as error:
                    with suppress(OSError):  # a full disk may be the reason
                        folder.fail(_reason(error), passing=isinstance(error, (PassingError, OSError)))
                    raise
        except FCLSegError as error:
            self.system_panic(str(error), fl_ctx)
        except Exception as error:
            self.log_exception(fl_ctx, "the run failed")
            self.system_panic(_reason(error), fl_ctx)

    def _check_job(self, fl_ctx: FLContext) -> None:
        """Refuse references in the job, which NVFlare has already replaced by variables of the server's environment:
        the name of the run's folder could be one."""
        config = Path(fl_ctx.get_workspace().get_app_config_dir(fl_ctx.get_job_id())) / "config_fed_server.json"
        if config.exists():
            check_references(read_json(config))

    def _run(self, folder: RunFolder, abort_signal: Signal, fl_ctx: FLContext) -> None:
        place = server_place(fl_ctx)
        if not place.simulated:
            check_start(self._settings, place)  # its failure is noted in the run's folder, and nobody tries again
        self._meter = WireMeter(fl_ctx.get_job_id())
        self._meter.listen(self._engine.get_cell())
        present = sorted(client.name for client in self._engine.get_clients())
        shared, sentence = shared_places(place, present) if place.simulated else ({}, "images stay at the sites")
        self.log_info(fl_ctx, sentence)
        sites = folder.start(self._settings, present, shared, fresh=start_over(), command=_command(fl_ctx))
        loop = RunLoop(self._settings, folder, sites, self._meter, shared, trust=trust_of(place))
        self._attendance = loop.attendance
        for site in sorted(set(sites) - set(present)):
            loop.attendance.fell_silent(site)
            self.log_warning(fl_ctx, f"{site} is not connected: the run continues without it")

        def ask(
            task_name: str, messages: dict[str, Message], timeout: int, accept: Callable[[str, Message], None]
        ) -> dict[str, str]:
            return self._ask(task_name, messages, timeout, accept, abort_signal, fl_ctx)

        loop.run(ask, lambda text: self.log_info(fl_ctx, text))
        if place.simulated:
            say_at_the_end(folder)
        else:
            folder.publish(Path(self._engine.get_workspace().get_run_dir(fl_ctx.get_job_id())) / "fclseg")

    def _ask(
        self,
        task_name: str,
        messages: dict[str, Message],
        timeout: int,
        accept: Callable[[str, Message], None],
        abort_signal: Signal,
        fl_ctx: FLContext,
    ) -> dict[str, str]:
        """Send each site its own task and wait for all. Returns {site: why its answer is missing or was refused}.

        One task per site instead of one broadcast: each task can carry its own data and end on its own.
        """
        failures: dict[str, str] = {}

        def received(client_task: Any, fl_ctx: FLContext) -> None:
            site = client_task.client.name
            try:
                message = read_result(client_task.result)
                self._meter.count(UP, site, message.payload())
                accept(site, message)
            except Exception as error:
                failures[site] = one_line(error)
                self.log_warning(fl_ctx, f"the result of {site} is not used in this round: {failures[site]}")
            client_task.result = None  # free the memory: the result has been aggregated or refused

        self._sent = {site: message.payload() for site, message in messages.items()}
        tasks = {
            site: SiteTask(task_name, to_shareable(message), timeout=timeout, result_received_cb=received)
            for site, message in messages.items()
        }
        for site, task in tasks.items():
            self.send(task, fl_ctx, targets=[site])
        self._wait(tasks, self._settings.pickup_timeout or timeout, abort_signal, fl_ctx)
        for site, task in tasks.items():
            if task.completion_status != TaskCompletionStatus.OK:
                failures[site] = f"{site} {self._fault(site, task, timeout)}"
                if self._attendance is not None:
                    self._attendance.fell_silent(site)
                self.log_warning(fl_ctx, f"{failures[site]}; it is left out until it asks for work again")
        return_free_memory()
        return failures

    def _fault(self, site: str, task: Task, timeout: int) -> str:
        if gave_up(site):
            return "is not started again, because its process keeps dying"
        if self._pulses.is_silent(site):
            return f"has given no sign of life for {SILENT_SECONDS:.0f} s"
        return f"did not finish task {task.name} within {timeout} s" if task.client_tasks else "fetched no task"

    def _wait(self, tasks: dict[str, Task], pickup: int, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Wait until every task has ended. A task that its site does not fetch within ``pickup`` seconds is cancelled,
        and so is one whose site has died."""
        started = time.monotonic()
        while waiting := {site: task for site, task in tasks.items() if task.completion_status is None}:
            if abort_signal.triggered:
                raise PassingError(
                    "the run was stopped before it was complete: run the same command again to continue it"
                )
            late = time.monotonic() - started > pickup
            for site, task in waiting.items():
                if (late and not task.client_tasks) or self._pulses.is_silent(site) or gave_up(site):
                    self.cancel_task(task, TaskCompletionStatus.TIMEOUT, fl_ctx)
            time.sleep(POLL_SECONDS)


def check_start(settings: RunSettings, place: Place) -> None:
    """A job may start from a file below the server's folder of runs, or of ``networks`` in its ``local/fclseg.json``.
    The answer for other files does not depend on whether they exist."""
    allowed = [place.runs, *([Path(place.option("networks") or "").absolute()] if place.option("networks") else [])]
    for name in ("encoder", "network"):
        chosen = getattr(settings, name)
        if chosen in (None, SHIPPED):
            continue
        path = Path(os.path.normpath(Path(chosen).absolute()))
        if not any(path.is_relative_to(folder) and _inside(path, folder) for folder in allowed):
            raise FCLSegError(
                f"'{name}' is not below the server's folder of runs or of networks: ask the coordinator to put it there"
            )


def _inside(path: Path, folder: Path) -> bool:
    """Whether a path stays in a folder when its links are followed."""
    return path.resolve().is_relative_to(folder.resolve())


MOST_COMMAND = 2000
"""Characters of a command that is recorded with a run."""


def _command(fl_ctx: FLContext) -> str:
    """The command that submitted the job or started the simulator, if it was one of ours."""
    props = (fl_ctx.get_prop(FLContextKey.JOB_META) or {}).get(JobMetaKey.CUSTOM_PROPS.value)
    given = props.get(COMMAND) if isinstance(props, dict) else None  # the lead can write anything there
    return one_line(given or os.environ.get(COMMAND, ""), MOST_COMMAND)


def _reason(error: Exception) -> str:
    """One sentence for the log and the run's folder."""
    return str(error) if isinstance(error, FCLSegError) else f"the run failed with {type(error).__name__}: {error}"
