"""The training curves in MLflow, with NVFlare's own receiver: one MLflow run per site.

The server's operator chooses where they go (``MLFLOW_TRACKING_URI``), never the job. Without that variable they are in
``mlflow.db`` in the run folder: ``mlflow ui --backend-store-uri sqlite:///RUN/mlflow.db`` shows them.
"""

import os

from nvflare.apis.fl_context import FLContext
from nvflare.app_opt.tracking.mlflow.mlflow_receiver import MLflowReceiver

from fclseg.flare.curves import FED_EVENT

DATABASE, EXPERIMENT = "mlflow.db", "fclseg"


class MlflowCurves(MLflowReceiver):
    def __init__(self, controller_id: str):
        super().__init__(events=[FED_EVENT])
        self._controller_id = controller_id

    def initialize(self, fl_ctx: FLContext) -> None:
        run = fl_ctx.get_engine().get_component(self._controller_id).run_path(fl_ctx)
        run.mkdir(parents=True, exist_ok=True)
        self.tracking_uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run / DATABASE}"
        self.kw_args = {"experiment_name": EXPERIMENT, "run_name": run.name, "experiment_tags": {}, "run_tags": {}}
        super().initialize(fl_ctx)
