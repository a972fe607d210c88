"""The server side of the training curves: NVFlare's own TensorBoard receiver, writing to the run folder."""

from nvflare.apis.fl_context import FLContext
from nvflare.app_opt.tracking.tb.tb_receiver import TBAnalyticsReceiver

from fclseg.flare.curves import FED_EVENT

FOLDER = "tensorboard"


class RunCurves(TBAnalyticsReceiver):
    """Writes to the run folder: NVFlare's default is the simulator's workspace, which is wiped at each start."""

    def __init__(self, controller_id: str):
        super().__init__(FOLDER, [FED_EVENT])
        self._controller_id = controller_id

    def initialize(self, fl_ctx: FLContext) -> None:
        controller = fl_ctx.get_engine().get_component(self._controller_id)
        self.root_log_dir = str(controller.run_path(fl_ctx) / FOLDER)
