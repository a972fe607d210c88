"""Sites that misbehave, for tests: their job names this executor instead of the product's."""

import os
import signal
import time

import numpy as np

from fclseg.flare.executor import SiteExecutor


class FaultyExecutor(SiteExecutor):
    """Site -> ``nan``, ``raise``, ``hang``, ``die``, or ``stuck`` from the second round on; other sites behave."""

    def __init__(self, learner_id: str, faults: dict[str, str]):
        super().__init__(learner_id)
        self._faults = faults

    def initialize(self, fl_ctx) -> None:
        super().initialize(fl_ctx)
        fault = self._faults.get(fl_ctx.get_identity_name())
        train = self.learner.train

        def faulty(site, message, fl_ctx):
            if fault == "raise":
                raise ZeroDivisionError("the site's computer is on fire")
            if fault == "hang" or (fault == "stuck" and message.round_number > 0):
                time.sleep(3600)  # until the simulator or the test kills it
            if fault == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            result = train(site, message, fl_ctx)
            if fault == "nan":
                next(iter(result.components["online"].values()))[...] = np.nan
            return result

        self.learner.train = faulty
