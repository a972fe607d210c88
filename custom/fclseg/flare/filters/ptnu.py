"""PTNU, the predictive target network update (Algorithm 2), as a pair of filters on the ``pretrain`` task.

The server filter replaces the target network by its distance to the online network. The site filter predicts the
target from the site's own target.
"""

from nvflare.apis.fl_context import FLContext

from fclseg.errors import FCLSegError, PublicError
from fclseg.federation.distance import distance
from fclseg.federation.ptnu import predict_target
from fclseg.federation.states import to_arrays
from fclseg.flare.filters.base import MessageFilter
from fclseg.flare.messages import Message
from fclseg.flare.place import Place
from fclseg.flare.site import Site


class TargetToDistance(MessageFilter):
    """Server, outgoing: {online, target} -> {online, d(online, target)}."""

    def change(self, message: Message, fl_ctx: FLContext) -> Message:
        target = message.components.pop("target", None)
        if message.distance is None:  # otherwise DP has predicted it already
            if target is None:
                raise FCLSegError(
                    "PTNU needs the target network or its predicted distance, but the message has neither"
                )
            message.distance = distance(message.components["online"], target)
        return message


class PredictTarget(MessageFilter):
    """Site, incoming: {online, d} -> {online, target predicted from the site's own target}."""

    def change(self, message: Message, fl_ctx: FLContext) -> Message:
        if message.distance is None:
            raise PublicError("the task contains no distance, so the target network cannot be predicted")
        site = Site.of(Place.of_site(fl_ctx), message)
        with site.memory.held():
            recalled = {} if "online" in message.components else site.memory.recall_global(message.round_number)
            if not recalled and "online" not in message.components:
                raise PublicError("neither this task nor the distance task of its round contained the online network")
            online = message.components.get("online") or to_arrays(recalled["online"])
            own = site.target(message.round_number, online)
        momentum = site.settings.build_preset().pretraining.ptnu_momentum
        message.components["target"] = predict_target(online, own, message.distance, momentum)
        message.distance = None
        return message
