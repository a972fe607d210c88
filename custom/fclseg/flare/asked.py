"""The protections that a job's filters ask for. The gate alone applies protections: they are then audited, charged to
the privacy budget, and combined with those of the job's settings and of the site's policy."""

from nvflare.apis.fl_context import FLContext

from fclseg.privacy.settings import NO_PROTECTION, PrivacySettings

_ASKED = "fclseg_asked_protections"


def ask(fl_ctx: FLContext, settings: PrivacySettings) -> None:
    """Ask for these protections in the task of this context. The stricter value of several wishes holds."""
    fl_ctx.set_prop(_ASKED, asked(fl_ctx).stricter(settings), private=True, sticky=False)


def asked(fl_ctx: FLContext) -> PrivacySettings:
    """What has been asked for in the task of this context."""
    return fl_ctx.get_prop(_ASKED) or NO_PROTECTION
