"""TensorBoard curves through NVFlare's own analytics: sites send, the server's receiver writes into the run folder."""

from nvflare.apis.analytix import AnalyticsDataType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo
from nvflare.app_opt.tracking.tb.tb_receiver import TBAnalyticsReceiver

FOLDER = "tensorboard"


def send_curves(component: FLComponent, fl_ctx: FLContext, step: int, **values: float) -> None:
    """Send scalars; ``ConvertToFedEvent`` in the job passes them on to the server."""
    for tag, value in values.items():
        dxo = create_analytic_dxo(tag=tag, value=float(value), data_type=AnalyticsDataType.SCALAR, global_step=step)
        send_analytic_dxo(component, dxo=dxo, fl_ctx=fl_ctx)


class RunCurves(TBAnalyticsReceiver):
    """Writes to the run folder: NVFlare's own place is in the simulator's workspace, which is wiped at each start."""

    def __init__(self, controller_id: str, events: list[str] | None = None):
        super().__init__(FOLDER, events)
        self._controller_id = controller_id

    def initialize(self, fl_ctx: FLContext) -> None:
        controller = fl_ctx.get_engine().get_component(self._controller_id)
        self.root_log_dir = str(controller.run_path / FOLDER)
