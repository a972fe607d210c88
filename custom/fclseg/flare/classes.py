"""Which classes a job may name, and nothing else of this package: the list that kits and simulations carry.

NVFlare builds whatever a job's configuration names, and calls it, as long as an entry of this list is the same or a
prefix ending in a dot. So every entry is the full name of one class, and each of these classes is harmless with any
arguments: it takes no path, no name and no expression from the job. ``tests/jobs`` checks the committed jobs against
the list.
"""

SITE_CLASSES = (
    "fclseg.flare.curves.SiteCurves",
    "fclseg.flare.executor.SiteExecutor",
    "fclseg.flare.filters.codec.DecodeDownload",
    "fclseg.flare.filters.codec.EncodeUpload",
    "fclseg.flare.filters.privacy.ClipAndNoise",
    "fclseg.flare.filters.ptnu.PredictTarget",
    "fclseg.flare.learner.SiteLearner",
)
"""What a job may build at a hospital."""

SERVER_CLASSES = (
    "fclseg.flare.controller.RoundController",
    "fclseg.flare.filters.codec.SendEncoded",
    "fclseg.flare.filters.ptnu.TargetToDistance",
    "fclseg.flare.tensorboard.RunCurves",
)
"""What a job may build on the server."""


def resources(classes: tuple[str, ...]) -> dict[str, object]:
    """The entries of NVFlare's ``local/resources.json`` that keep everything else out and the logs in."""
    return {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(classes),
        "allow_log_streaming": False,
    }
