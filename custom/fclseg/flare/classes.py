"""The allow-list of classes that a job may name. Startup kits and simulations contain it.

NVFlare instantiates every class that a job's configuration names if an entry of this list equals its name or is a
prefix of it that ends in a dot. Every entry is therefore the full name of one class. Each of these classes is harmless
with any arguments: it takes no path, no name and no expression from the job. ``tests/jobs`` checks the committed jobs
against the list.
"""

CUSTOM, NOTE = "app/custom", "README.md"
"""The folder for a job's code, and the only file that our jobs have there."""
NO_CODE = """There is no code here, on purpose. NVFlare's simulator and its own startup kits run classes of an installed
package (`fclseg`) only for jobs that have this folder. Startup kits of FCLSeg accept it with exactly this note in it.
"""

SITE_CLASSES = (
    "fclseg.flare.curves.SiteCurves",
    "fclseg.flare.executor.SiteExecutor",
    "fclseg.flare.filters.ClipAndNoise",
    "fclseg.flare.learner.SiteLearner",
)
"""Classes that a job may instantiate at a hospital."""

SERVER_CLASSES = (
    "fclseg.flare.controller.RoundController",
    "fclseg.flare.mlflow_curves.MlflowCurves",
    "fclseg.flare.tensorboard.RunCurves",
    "fclseg.flare.wandb_curves.WandbCurves",
)
"""Classes that a job may instantiate on the server."""


def resources(classes: tuple[str, ...]) -> dict[str, object]:
    """Entries of NVFlare's ``local/resources.json`` that forbid all other classes and keep log files at the site."""
    return {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(classes),
        "allow_log_streaming": False,
    }
