"""Continues interrupted runs without anybody's help. A component of the server's own process, not of a job.

NVFlare ends a job when one of its processes dies, and lists a job as running for ever if the server itself dies. Every
run can be continued from its last checkpoint, so the keeper submits such a job again under its submitter's name, as
soon as the run's sites are connected. It does the same for a site that comes back or joins: NVFlare starts a job's
process at a site only once, when the job starts.
"""

import contextlib
import os
import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import ConfigVarName, FLContextKey, RunProcessKey, SystemComponents
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import ALL_SITES, Job, JobMetaKey, RunStatus
from nvflare.private.fed.server.job_cmds import CLONED_META_KEYS

from fclseg.engine.run_files import CONFIG, CONTINUED_AS, FACTS
from fclseg.errors import PassingError
from fclseg.flare import patches
from fclseg.flare.heartbeat import SILENT_SECONDS
from fclseg.flare.runs.attempts import Attempts
from fclseg.flare.runs.overview import facts, read_run
from fclseg.flare.runs.submitted import SubmittedRun, refusal, run_of_job
from fclseg.locks import held

OUTCOME_SECONDS = 60.0
"""How long NVFlare waits for the last word of a dead site after the job has ended."""
OUTCOME_VARIABLE = f"NVFLARE_{ConfigVarName.CLIENT_OUTCOME_WAIT_TIMEOUT}".upper()
LOCK, LOCK_SECONDS = ".server.lock", 10.0
"""In the store of jobs. A server that was just killed may still hold it for a moment."""
KEPT = (*CLONED_META_KEYS, JobMetaKey.CUSTOM_PROPS.value, JobMetaKey.SUBMITTER_NAME.value)
KEPT += (JobMetaKey.SUBMITTER_ORG.value, JobMetaKey.SUBMITTER_ROLE.value)


@dataclass
class Waiting:
    """A job that has ended and whose run is to be continued."""

    run: SubmittedRun
    due: float
    latest: float  # not to wait for absent sites after that


class RunKeeper(FLComponent):
    """Events only fill a queue: they come from NVFlare's own threads, which must not wait."""

    def __init__(self) -> None:
        super().__init__()
        patches.apply("parent")
        os.environ.setdefault(OUTCOME_VARIABLE, str(OUTCOME_SECONDS))  # NVFlare reads it when it makes its job runner
        self._events: queue.Queue[tuple[str, str]] = queue.Queue()
        self._attempts = Attempts()
        self._runs: dict[str, SubmittedRun | None] = {}  # by job id
        self._waiting: dict[str, Waiting] = {}  # by job id
        self._stopped: set[str] = set()  # jobs that the keeper has stopped in order to continue them
        self._joining: dict[str, int] = {}  # by job id: finished rounds when a new site came
        self._told: dict[str, int] = {}  # by job id: finished rounds in the facts that were last stored
        self._heard: dict[str, float] = {}  # by site
        self._restarted: dict[tuple[str, Path], int] = {}  # by site and run: finished rounds when it last restarted
        self._engine: Any = None
        self._life = contextlib.ExitStack()  # the lock is held until the process ends

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            self._start(fl_ctx)
        elif event_type in (EventType.JOB_COMPLETED, EventType.JOB_ABORTED):
            data = fl_ctx.get_prop(FLContextKey.EVENT_DATA) or {}
            self._events.put((event_type, data.get(JobMetaKey.JOB_ID.value, "")))
        elif event_type in (EventType.CLIENT_REGISTER_PROCESSED, EventType.CLIENT_HEARTBEAT_RECEIVED):
            self._events.put((event_type, fl_ctx.get_peer_context().get_identity_name()))

    def _start(self, fl_ctx: FLContext) -> None:
        """Jobs that are listed as running when the server starts were lost with the server before, unless another one
        uses the same store: a copied kit must not end the jobs of the server it was copied from."""
        self._engine = fl_ctx.get_engine()
        try:
            self._life.enter_context(held(self._store / LOCK, "the store of jobs", LOCK_SECONDS, "server"))
        except PassingError as error:
            self.log_error(fl_ctx, f"this server continues no run: {error}")
            return
        runner = self._engine.job_runner
        lost = self._manager.get_jobs_by_status([RunStatus.RUNNING, RunStatus.DISPATCHED], fl_ctx)
        runner.update_unfinished_jobs(fl_ctx)
        for job in lost:
            self._events.put((EventType.JOB_COMPLETED, job.job_id))
        threading.Thread(target=self._work, daemon=True).start()

    @property
    def _store(self) -> Path:
        return Path(self._manager.uri_root)

    @property
    def _manager(self) -> Any:
        return self._engine.get_component(SystemComponents.JOB_MANAGER)

    def _work(self) -> None:
        handlers = {
            EventType.JOB_COMPLETED: self._ended,
            EventType.JOB_ABORTED: self._ended,
            EventType.CLIENT_REGISTER_PROCESSED: self._registered,
            EventType.CLIENT_HEARTBEAT_RECEIVED: self._beat,
        }
        while True:
            with self._engine.new_context() as fl_ctx:
                try:
                    with contextlib.suppress(queue.Empty):
                        event, subject = self._events.get(timeout=1.0)
                        handlers[event](subject, fl_ctx)
                    self._continue_runs(fl_ctx)
                    self._admit_sites(fl_ctx)
                    self._tell_rounds(fl_ctx)
                except Exception:  # one damaged run must not keep the others from being continued
                    self.log_exception(fl_ctx, "the keeper of runs failed")

    def _beat(self, site: str, fl_ctx: FLContext) -> None:
        self._heard[site] = time.monotonic()

    def _run(self, job: Job, fl_ctx: FLContext) -> SubmittedRun | None:
        """The run of a job; None if it is none of ours."""
        if job.job_id not in self._runs:
            root = Path(fl_ctx.get_workspace().get_root_dir())
            self._runs[job.job_id] = run_of_job(self._manager.get_app(job, next(iter(job.deploy_map)), fl_ctx), root)
        return self._runs[job.job_id]

    def _ended(self, job_id: str, fl_ctx: FLContext) -> None:
        job = self._manager.get_job(job_id, fl_ctx)
        run = job and self._run(job, fl_ctx)
        self._joining.pop(job_id, None)
        if run:
            self._tell(job_id, run, fl_ctx)
        if not run or job_id in self._waiting or job.meta.get(CONTINUED_AS):
            return
        status = job.meta.get(JobMetaKey.STATUS.value)
        refused = refusal(job.meta.get(JobMetaKey.JOB_DEPLOY_DETAIL.value))
        if refused and status == RunStatus.FAILED_TO_RUN.value:
            self.log_error(fl_ctx, f"run {run.name} is not continued, because a party refuses the job: {refused}")
            return
        aborted = status == RunStatus.FINISHED_ABORTED.value
        if run.complete or run.lasting_failure or (aborted and job_id not in self._stopped):
            return
        if any(other != job_id and self._runs.get(other) == run for other in self._engine.run_processes):
            return  # a second job of the same run, which was refused
        pause = self._attempts.pause(run.folder, run.rounds)
        if pause is None:
            self.log_error(fl_ctx, f"run {run.name} is not continued: too many attempts without a finished round")
            return
        now = time.monotonic()
        self._waiting[job_id] = Waiting(run, now + pause, now + pause + SILENT_SECONDS)
        self.log_info(fl_ctx, f"run {run.name} was interrupted (job {job_id}) and is continued in {pause:.0f} s")

    def _continue_runs(self, fl_ctx: FLContext) -> None:
        now = time.monotonic()
        connected = {client.name for client in self._engine.get_clients()}
        for job_id, waiting in list(self._waiting.items()):
            absent = set(waiting.run.sites) - connected
            if now < waiting.due or (absent and now < waiting.latest):
                continue
            del self._waiting[job_id]
            job = self._manager.get_job(job_id, fl_ctx)
            meta = {str(key): job.meta[key] for key in KEPT if key in job.meta}
            meta[JobMetaKey.CLONED_FROM.value] = job_id
            new = self._manager.clone(job_id, meta, fl_ctx)[JobMetaKey.JOB_ID.value]
            self._manager.update_meta(job_id, {CONTINUED_AS: new}, fl_ctx)
            self.log_info(fl_ctx, f"run {waiting.run.name} is continued by job {new}")

    def _registered(self, site: str, fl_ctx: FLContext) -> None:
        """A site has started. Its processes of running jobs are gone, and it has none of jobs that started without it.

        If the job is still waiting for the site's answer, the round is repeated with it at once. If the others have
        continued without it, it waits for the end of their round. So does a site that restarts twice within a round:
        it must not keep the others from finishing it."""
        client = self._engine.get_client_from_name(site)
        silent = time.monotonic() - self._heard.get(site, -SILENT_SECONDS) > SILENT_SECONDS
        for job_id, process in list(self._engine.run_processes.items()):
            participants = process.get(RunProcessKey.PARTICIPANTS) or {}
            job = self._manager.get_job(job_id, fl_ctx)
            run = job and self._run(job, fl_ctx)
            if client is None or client.token in participants or run is None or not _invited(job, site):
                continue
            first = self._restarted.get((site, run.folder), -1) < run.rounds
            if any(one.name == site for one in participants.values()) and first and not silent:
                self._restarted[site, run.folder] = run.rounds
                self._stop(job_id, f"{site} was restarted", fl_ctx)
            else:
                self._joining.setdefault(job_id, run.rounds)
                self.log_info(fl_ctx, f"{site} takes part in run {run.name} after the current round")
        self._heard[site] = time.monotonic()

    def _admit_sites(self, fl_ctx: FLContext) -> None:
        for job_id, rounds in list(self._joining.items()):
            run = self._runs.get(job_id)
            if run and run.rounds > rounds and not run.complete:
                self._stop(job_id, "a site joins", fl_ctx)

    def _tell_rounds(self, fl_ctx: FLContext) -> None:
        for job_id in list(self._engine.run_processes):
            job = None if job_id in self._runs else self._manager.get_job(job_id, fl_ctx)
            run = self._run(job, fl_ctx) if job else self._runs.get(job_id)
            if run and run.rounds != self._told.get(job_id):
                self._tell(job_id, run, fl_ctx)

    def _tell(self, job_id: str, run: SubmittedRun, fl_ctx: FLContext) -> None:
        """Store the run's facts with the job, where its submitter may read them."""
        self._told[job_id] = run.rounds
        if (run.folder / CONFIG).exists():
            self._manager.update_meta(job_id, {FACTS: facts(read_run(run.folder))}, fl_ctx)

    def _stop(self, job_id: str, why: str, fl_ctx: FLContext) -> None:
        self._joining.pop(job_id, None)
        self._stopped.add(job_id)
        self.log_info(fl_ctx, f"job {job_id} is stopped and its run continued, because {why}")
        self._engine.job_runner.stop_run(job_id, fl_ctx)


def _invited(job: Job, site: str) -> bool:
    """Whether the job is for all sites, or for this one among others."""
    named = {name for names in job.deploy_map.values() for name in names}
    return ALL_SITES in {str(name).upper() for name in named} or site in named
