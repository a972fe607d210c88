"""Clipping and noise on a site's updates, asked for by a filter in a job. The gate does the work.

A result contains whole networks, and every tensor must arrive. NVFlare's own privacy filters clip or drop what they
are given, so they would clip the weights themselves instead of the update. They would also act after the gate, where
the audit and the privacy budget cannot see them.
"""

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext

from fclseg.errors import PublicError
from fclseg.flare.asked import ask, asked
from fclseg.flare.filters.base import MessageFilter
from fclseg.flare.messages import Message
from fclseg.privacy.settings import PrivacySettings, check_privacy


class ClipAndNoise(MessageFilter):
    """Site, outgoing: the same as the job's settings ``clip`` and ``sigma``."""

    def __init__(self, clip: float, sigma: float):
        super().__init__()
        if clip is None:
            raise PublicError("the job's filter ClipAndNoise needs a 'clip': give a number > 0")
        check_privacy({"clip": clip, "sigma": sigma}, "the job's filter ClipAndNoise")
        self._wanted = PrivacySettings(clip=clip, sigma=sigma)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.BEFORE_TASK_EXECUTION:
            ask(fl_ctx, self._wanted)

    def change(self, message: Message, fl_ctx: FLContext) -> Message:
        known = asked(fl_ctx)
        if known != known.stricter(self._wanted):
            raise PublicError("the gate was not asked to clip this result: it is not sent")
        if message.others:
            raise PublicError(
                f"'{next(iter(message.others))}' are features, not an update of a network: this filter cannot protect "
                "them: choose a job that sends no features"
            )
        return message
