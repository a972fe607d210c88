"""NVFlare's entry at a site: routes the two tasks to the learner and turns failures into readable answers."""

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.executors.learner_executor import LearnerExecutor

from fclseg.errors import DataError, FCLSegError
from fclseg.flare.messages import DISTANCE_TASK, PRETRAIN_TASK, REASON


class SiteExecutor(LearnerExecutor):
    """NVFlare's own executor calls ``validate`` before training and knows no ``distance`` task."""

    def __init__(self, learner_id: str):
        super().__init__(learner_id, train_task=PRETRAIN_TASK)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        try:
            if not self.is_initialized:
                self.initialize(fl_ctx)
                self.is_initialized = True
            if task_name == PRETRAIN_TASK:
                return self.learner.train(shareable, fl_ctx, abort_signal)
            if task_name == DISTANCE_TASK:
                return self.learner.distance(shareable, fl_ctx, abort_signal)
        except Exception as error:
            self.log_exception(fl_ctx, f"task {task_name} failed: {error}")
            return failed(error)
        return make_reply(ReturnCode.TASK_UNKNOWN)


def failed(error: Exception) -> Shareable:
    """A failed result with a reason for the server's log.

    Sentences about data may contain file names, and those may contain names of patients, so they stay in the site's own
    log; so do errors that nobody wrote a sentence for.
    """
    reply = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    public = isinstance(error, FCLSegError) and not isinstance(error, DataError)
    reply.set_header(REASON, str(error) if public else f"{type(error).__name__}, explained in the site's own log")
    return reply
