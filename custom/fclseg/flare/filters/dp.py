"""DP, distance prediction (Eq. dist_pred_scaled), as a filter on what leaves a site.

The site has answered the ``distance`` task with one number, so its target network stays at home; every R-th round it is
uploaded after all, and the server calibrates its prediction with it.
"""

from pathlib import Path

from nvflare.apis.fl_context import FLContext

from fclseg.federation.exchange import crosses
from fclseg.flare.filters.base import MessageFilter
from fclseg.flare.messages import Message
from fclseg.flare.settings import Place
from fclseg.flare.site import Site


class WithholdBetweenCalibrations(MessageFilter):
    """Site, outgoing: drop every component that the exchange plan does not send up in this round."""

    def __init__(self, workspace: str, job_id: str, site: str):
        super().__init__()
        self._place = Place(site, Path(workspace), job_id)

    def change(self, message: Message, fl_ctx: FLContext) -> Message:
        settings = Site.of(self._place, message).settings
        every = settings.build_preset().pretraining.calibration_rounds
        when = {flow.component: flow.up for flow in settings.row.flows}
        message.components = {
            name: arrays
            for name, arrays in message.components.items()
            if name not in when or crosses(when[name], message.round_number, every)
        }
        return message
