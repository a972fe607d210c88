"""NVFlare's entry point at a site: passes each task through the hospital's gate to the learner.

Details of a failure stay at the site. This is the only executor on a site's allow-list of classes, so no job can
bypass the gate.
"""

import importlib
import os
import threading

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.executors.learner_executor import LearnerExecutor
from nvflare.app_common.logging.constants import is_log_streaming_allowed

from fclseg.engine.gate import OpenGate
from fclseg.engine.messages import DISTANCE_TASK, PRETRAIN_TASK, SUM_TASK
from fclseg.engine.site_work import answer
from fclseg.errors import PublicError
from fclseg.flare import patches
from fclseg.flare.curves import send_curves
from fclseg.flare.filters import asked
from fclseg.flare.free_memory import return_free_memory
from fclseg.flare.heartbeat import Heartbeat
from fclseg.flare.wire import REASON, read_task, site_place, to_shareable
from fclseg.hospital.gate import Gate
from fclseg.hospital.problems import note_problem, public_sentence


class SiteExecutor(LearnerExecutor):
    """Replaces NVFlare's own executor, which calls ``validate`` before training and has no ``distance`` task."""

    def __init__(self, learner_id: str):
        patches.apply("site")
        super().__init__(learner_id, train_task=PRETRAIN_TASK)
        self.is_initialized: bool = False
        self._heartbeat = Heartbeat()
        # NVFlare builds this object and then waits for the server: time enough to import what the task will need.
        threading.Thread(target=importlib.import_module, args=("torch",), daemon=True).start()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        if task_name not in (PRETRAIN_TASK, DISTANCE_TASK, SUM_TASK):
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            check_logs_stay(fl_ctx)
            if not self.is_initialized:
                os.umask(0o077)  # only the site's account may read what this process writes
                self.initialize(fl_ctx)
                self.is_initialized = True
                self._say_which_images(fl_ctx)
            self._heartbeat.start(fl_ctx)
            message = read_task(shareable)
            site = self.learner.open(message, fl_ctx)
            gate = (OpenGate if site.place.simulated else Gate)(site, task_name, message, asked(fl_ctx))
            work = self.learner.train if task_name == PRETRAIN_TASK else self.learner.distance
            result = answer(gate, lambda site, message: work(site, message, fl_ctx))
            if gate.curves:  # numbers leave after the gate, like everything else
                send_curves(self, fl_ctx, result.round_number, **gate.curves)
            return to_shareable(result)
        except Exception as error:
            return self._failed(task_name, error, fl_ctx)
        finally:
            return_free_memory()

    def _say_which_images(self, fl_ctx: FLContext) -> None:
        if site_place(fl_ctx).on_phantoms:
            sent = "; its log files go to the server, which is harmless here" * is_log_streaming_allowed(fl_ctx)
            self.log_info(
                fl_ctx,
                f"no data folder is configured (local/fclseg.json or FCLSEG_DATA): this site trains on generated "
                f"images (phantoms), because its server is on this machine{sent}",
            )

    def _failed(self, task_name: str, error: Exception, fl_ctx: FLContext) -> Shareable:
        """A failed result. The full error stays in the site's own file: error messages contain file names, and those
        may contain patient names."""
        note_problem(site_place(fl_ctx).runs, f"task {task_name} failed", error)
        self.log_error(fl_ctx, f"task {task_name} failed: {public_sentence(error)}")
        reply = make_reply(ReturnCode.EXECUTION_EXCEPTION)
        reply.set_header(REASON, public_sentence(error))
        return reply


def check_logs_stay(fl_ctx: FLContext) -> None:
    """Refuse to work if NVFlare sends the site's log files to the server. Generated images have no patients."""
    place = site_place(fl_ctx)
    if not place.simulated and not place.on_phantoms and is_log_streaming_allowed(fl_ctx):
        raise PublicError(
            'this site sends its log files to the server, which may contain patient names: set "allow_log_streaming" '
            "to false in its local/resources.json and restart it"
        )
