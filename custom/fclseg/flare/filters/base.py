"""A filter that sees a whole message at once and fails instead of letting something through unchecked."""

from abc import abstractmethod

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_constant import ProcessType, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fclseg.errors import FCLSegError
from fclseg.flare.messages import Message
from fclseg.flare.place import Place
from fclseg.hospital.problems import note_problem, public_sentence


class MessageFilter(DXOFilter):
    """Base class of all filters.

    NVFlare's own filter is called for each component separately, skips what it cannot read, and takes a missing return
    value for "nothing to do". This class gets the whole message, and every irregularity is an error, which NVFlare
    turns into a refused task or result.
    """

    def __init__(self):
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
        return self.change(Message.from_dxo(dxo), fl_ctx).to_dxo()

    def _told(self, error: Exception, fl_ctx: FLContext) -> str:
        """The part of an error that may be logged. At a site, the details go to the site's own file."""
        if fl_ctx.get_process_type() == ProcessType.CLIENT_JOB:
            note_problem(Place.of_site(fl_ctx).runs, f"filter {type(self).__name__} failed", error)
            return public_sentence(error)
        return str(error)

    @abstractmethod
    def change(self, message: Message, fl_ctx: FLContext) -> Message:
        """Returns the message to pass on."""
