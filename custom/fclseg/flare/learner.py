"""NVFlare's learner: keeps the site of a run between its tasks, and gives their work cores and threads.

What the work is says ``fclseg.engine.site_work``.
"""

from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.learner_spec import Learner

from fclseg.engine import site_work
from fclseg.engine.messages import Message
from fclseg.engine.site import Site
from fclseg.flare.slots import training_slot
from fclseg.flare.wire import site_place


class SiteLearner(Learner):
    """Answers the tasks ``distance`` (one number) and ``pretrain`` (one round of local training)."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: Site | None = None

    def open(self, message: Message, fl_ctx: FLContext) -> Site:
        """The site in the run that a task belongs to. Its objects are rebuilt when the run or the site's own settings
        change."""
        site = Site.of(site_place(fl_ctx), message)
        if self._opened is None or site != self._opened:
            self._opened = site
        return self._opened

    def distance(self, site: Site, message: Message, fl_ctx: FLContext) -> Message:
        return site_work.measure(site, message)

    def train(self, site: Site, message: Message, fl_ctx: FLContext) -> Message:
        import torch  # here, so that NVFlare can connect without waiting for it

        with training_slot(site.place.threads):
            torch.set_num_threads(site.place.threads)
            return site_work.train(site, message)
