"""The training curves in Weights & Biases, with NVFlare's own receiver: one W&B run per site.

The server's operator chooses whether they leave the machine, never the job: ``WANDB_MODE=online`` in the server's
environment. Otherwise they stay in the folder ``wandb`` of the run, and ``wandb sync`` can upload them later.
"""

import os

from nvflare.apis.fl_context import FLContext
from nvflare.app_opt.tracking.wandb.wandb_receiver import WandBReceiver

from fclseg.flare.curves import FED_EVENT

PROJECT, OFFLINE = "fclseg", "offline"


class WandbCurves(WandBReceiver):
    def __init__(self, controller_id: str):
        mode = os.environ.get("WANDB_MODE") or OFFLINE
        super().__init__({"project": PROJECT, "job_type": "pretrain"}, mode, [FED_EVENT], process_timeout=60.0)
        self._controller_id = controller_id

    def initialize(self, fl_ctx: FLContext) -> None:
        run = fl_ctx.get_engine().get_component(self._controller_id).run_path(fl_ctx)
        run.mkdir(parents=True, exist_ok=True)
        self.wandb_args |= {"name": run.name, "dir": str(run)}
        super().initialize(fl_ctx)
