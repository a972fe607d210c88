"""Less of a site's images in what it sends: a filter that a job, or a hospital, may add.

A result carries whole networks, and every tensor of them must arrive. So NVFlare's own privacy filters, which clip or
leave out what they are given, would clip the weights themselves; this one acts on the *update*, the network as it is
sent minus the network as it was received.
"""

import math
from pathlib import Path

import numpy as np
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext

from fclseg.errors import FCLSegError
from fclseg.federation.states import VARIANCE, Arrays, to_arrays
from fclseg.flare.filters.base import MessageFilter
from fclseg.flare.messages import PRETRAIN_TASK, Message
from fclseg.flare.settings import Place
from fclseg.flare.site import Site


class ClipAndNoise(MessageFilter):
    """Site, outgoing: every component becomes what was received + the clipped update + noise.

    ``clip`` is the largest Euclidean norm that the update may have, over all components together, and ``sigma`` the
    standard deviation of the Gaussian noise on each number, as a multiple of ``clip``. Counters pass as they are. No
    privacy budget is computed. The noise comes from the operating system and not from the run's seed, which the server
    knows.
    """

    def __init__(self, workspace: str, job_id: str, site: str, clip: float, sigma: float):
        super().__init__()
        if not 0 < clip < math.inf or not 0 <= sigma < math.inf:
            raise FCLSegError(f"an update cannot be clipped to {clip} with noise of {sigma}: give clip > 0, sigma >= 0")
        self._place = Place(site, Path(workspace), job_id)
        self._clip, self._sigma = clip, sigma
        self._random = np.random.default_rng()
        self._task: Message | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Keep what the task brought: NVFlare has dropped it when results are filtered."""
        if event_type == EventType.BEFORE_TASK_EXECUTION and fl_ctx.get_prop(FLContextKey.TASK_NAME) == PRETRAIN_TASK:
            self._task = Message.from_shareable(fl_ctx.get_prop(FLContextKey.TASK_DATA))

    def change(self, message: Message, fl_ctx: FLContext) -> Message:
        if message.others:
            raise FCLSegError(
                f"{self._place.name}: '{next(iter(message.others))}' are features and no update of a network, so noise "
                "cannot protect them here: choose a job that sends none"
            )
        received = self._received(message)
        updates = {
            (component, name): array.astype(np.float64) - received[component][name]
            for component, arrays in message.components.items()
            for name, array in arrays.items()
            if np.issubdtype(array.dtype, np.floating)
        }
        norm = math.sqrt(sum(float((update**2).sum()) for update in updates.values()))
        scale = min(1.0, self._clip / norm) if norm else 1.0
        components = {component: dict(arrays) for component, arrays in message.components.items()}
        for (component, name), update in updates.items():
            noise = self._random.standard_normal(update.shape) * (self._sigma * self._clip)
            value = received[component][name] + scale * update + noise
            if name.endswith(VARIANCE):
                value = np.maximum(value, 0.0)  # a network with a negative variance computes nothing
            components[component][name] = np.asarray(value).astype(message.components[component][name].dtype)
        message.components = components
        return message

    def _received(self, message: Message) -> dict[str, Arrays]:
        """What this task brought, or the distance task of the same round; refuses where an update has no beginning."""
        site, task = Site.of(self._place, message), self._task
        received = {name: to_arrays(part) for name, part in site.memory.recall_global(message.round_number).items()}
        if task and (task.round_number, task.meta["run"]["id"]) == (message.round_number, site.run_id):
            received |= task.components
        if unknown := sorted(set(message.components) - set(received)):
            raise FCLSegError(
                f"{self._place.name}: component '{unknown[0]}' was not received in round {message.round_number}, so "
                "there is no update to clip: the result is not sent"
            )
        return received
