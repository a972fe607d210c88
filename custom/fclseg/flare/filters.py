"""Filters that a job adds to what its sites send, and the one that the package has: clipping and noise.

A result contains whole networks, and every tensor must arrive. NVFlare's own privacy filters clip or drop what they
are given, so they would clip the weights themselves instead of the update. They would also act after the gate, where
the audit and the privacy budget cannot see them. Ours therefore asks the gate, which alone applies protections.
"""

from abc import abstractmethod

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ProcessType, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fclseg.engine.messages import Message
from fclseg.errors import FCLSegError, PublicError
from fclseg.flare.wire import from_dxo, site_place, to_dxo
from fclseg.hospital.problems import note_problem, public_sentence
from fclseg.privacy.protections import NO_PROTECTION, PrivacySettings, check_privacy

_ASKED = "fclseg_asked_protections"


def ask(fl_ctx: FLContext, settings: PrivacySettings) -> None:
    """Ask for these protections in the task of this context. The stricter value of several wishes holds."""
    fl_ctx.set_prop(_ASKED, asked(fl_ctx).stricter(settings), private=True, sticky=False)


def asked(fl_ctx: FLContext) -> PrivacySettings:
    """What has been asked for in the task of this context."""
    return fl_ctx.get_prop(_ASKED) or NO_PROTECTION


class MessageFilter(DXOFilter):
    """Base class of all filters.

    NVFlare's own filter is called for each component separately, skips what it cannot read, and takes a missing return
    value for "nothing to do". This class gets the whole message, and every irregularity is an error, which NVFlare
    turns into a refused task or result.
    """

    def __init__(self) -> None:
        super().__init__([DataKind.COLLECTION], [DataKind.COLLECTION])

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        if shareable.get_return_code() != ReturnCode.OK:
            return shareable
        try:
            result = self.process_dxo(from_shareable(shareable), shareable, fl_ctx)
        except Exception as error:  # NVFlare logs the message unchanged
            raise FCLSegError(self._told(error, fl_ctx)) from None
        result.add_filter_history(type(self).__name__)
        return result.update_shareable(shareable)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO:
        return to_dxo(self.change(from_dxo(dxo), fl_ctx))

    def _told(self, error: Exception, fl_ctx: FLContext) -> str:
        """The part of an error that may be logged. At a site, the details go to the site's own file."""
        if fl_ctx.get_process_type() == ProcessType.CLIENT_JOB:
            note_problem(site_place(fl_ctx).runs, f"filter {type(self).__name__} failed", error)
            return public_sentence(error)
        return str(error)

    @abstractmethod
    def change(self, message: Message, fl_ctx: FLContext) -> Message:
        """Returns the message to pass on."""


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
