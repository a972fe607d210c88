"""Clipping and noise on a site's updates, as a filter that a job may add. A hospital's own policy offers the same.

A result contains whole networks, and every tensor must arrive. NVFlare's own privacy filters clip or drop what they
are given, so they would clip the weights themselves. This filter acts on the *update*: the network that is sent minus
the network that was received.
"""

import math

import numpy as np
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext

from fclseg.errors import PublicError
from fclseg.flare.filters.base import MessageFilter
from fclseg.flare.gate import received_networks
from fclseg.flare.messages import PRETRAIN_TASK, Message
from fclseg.flare.place import Place
from fclseg.flare.site import Site
from fclseg.privacy.update_noise import clip_and_noise


class ClipAndNoise(MessageFilter):
    """Site, outgoing: replaces every component by the received component + the clipped update + noise.

    The noise comes from the operating system and not from the run's seed, which the server knows.
    """

    def __init__(self, clip: float, sigma: float):
        super().__init__()
        numbers = all(type(value) in (int, float) for value in (clip, sigma))
        if not numbers or not 0 < clip < math.inf or not 0 <= sigma < math.inf:
            raise PublicError("the job's clipping is not valid: give numbers clip > 0 and sigma >= 0")
        self._clip, self._sigma = clip, sigma
        self._random = np.random.default_rng()
        self._task: Message | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Keep the networks of the task: NVFlare has dropped them by the time results are filtered."""
        if event_type == EventType.BEFORE_TASK_EXECUTION and fl_ctx.get_prop(FLContextKey.TASK_NAME) == PRETRAIN_TASK:
            self._task = Message.from_shareable(fl_ctx.get_prop(FLContextKey.TASK_DATA))

    def change(self, message: Message, fl_ctx: FLContext) -> Message:
        if message.encoded:
            raise PublicError("encoded networks cannot be clipped: put this filter before the codec")
        if message.others:
            raise PublicError(
                f"'{next(iter(message.others))}' are features, not an update of a network: noise cannot protect them "
                "here: choose a job that sends no features"
            )
        site, task = Site.of(Place.of_site(fl_ctx), message), self._task
        if not task or (task.round_number, task.meta["run"]["id"]) != (message.round_number, site.run_id):
            task = Message(meta=message.meta)
        received = received_networks(site, task, message.components)
        message.components = clip_and_noise(message.components, received, self._clip, self._sigma, self._random)
        return message
