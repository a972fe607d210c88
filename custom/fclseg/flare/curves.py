"""The site side of the training curves: sends scalars with NVFlare's own analytics."""

from nvflare.apis.analytix import AnalyticsDataType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo
from nvflare.app_common.widgets.convert_to_fed_event import FED_EVENT_PREFIX, ConvertToFedEvent

EVENT = "analytix_log_stats"
FED_EVENT = FED_EVENT_PREFIX + EVENT


def send_curves(component: FLComponent, fl_ctx: FLContext, step: int, **values: float) -> None:
    """Send scalars. ``SiteCurves`` in the job forwards them to the server."""
    for tag, value in values.items():
        dxo = create_analytic_dxo(tag=tag, value=float(value), data_type=AnalyticsDataType.SCALAR, global_step=step)
        send_analytic_dxo(component, dxo=dxo, fl_ctx=fl_ctx)


class SiteCurves(ConvertToFedEvent):
    """Forwards scalars to the server, and nothing else.

    NVFlare's own class lets the job choose which events leave the site, and every log line is an event.
    """

    def __init__(self) -> None:
        super().__init__([EVENT])
