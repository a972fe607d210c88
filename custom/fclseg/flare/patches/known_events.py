"""A party accepts one kind of event from another: a point of a curve.

NVFlare fires every event that a message names as if the party itself had: a site could end the run of all others with
``_fatal_system_error``. Its receivers of curves also take pictures, texts and tables, and write a table to folders that
its sender names, anywhere on the server's disk.
"""

import functools
import math

from nvflare.apis.analytix import AnalyticsDataType, TrackConst
from nvflare.apis.dxo import from_shareable
from nvflare.apis.fl_constant import FedEventHeader, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.widgets.fed_event import FedEventRunner

from fclseg.documents import UNUSABLE
from fclseg.engine.gate import CURVES
from fclseg.flare.curves import FED_EVENT


def accept_known_events() -> None:
    """For this process, once."""
    original = FedEventRunner._receive
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def receive(self: FedEventRunner, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        return original(self, topic, request, fl_ctx) if _is_point(request) else make_reply(ReturnCode.BAD_REQUEST_DATA)

    FedEventRunner._receive = receive


def _is_point(request: Shareable) -> bool:
    try:
        dxo = from_shareable(request)
        name, value, step = (
            dxo.data[key] for key in (TrackConst.TRACK_KEY, TrackConst.TRACK_VALUE, TrackConst.GLOBAL_STEP_KEY)
        )
        return (
            request.get_header(FedEventHeader.EVENT_TYPE) == FED_EVENT
            and dxo.get_meta_prop(TrackConst.DATA_TYPE_KEY) == AnalyticsDataType.SCALAR
            and (len(dxo.data) == 4 and dxo.data[TrackConst.KWARGS_KEY] == {TrackConst.GLOBAL_STEP_KEY: step})
            and (name in CURVES and type(value) is float and math.isfinite(value))
            and (type(step) is int and 0 <= step < 2**31)
        )
    except UNUSABLE:
        return False
