"""Replacements of private parts of NVFlare. Nothing is replaced by an import: a party's process calls ``apply`` once.

Each module says what NVFlare does, why that is not enough, and what is replaced. ``tests/flare/test_patches.py`` checks
each one against the class that it changes.
"""

from collections.abc import Callable
from functools import cache
from importlib import metadata

from fclseg.errors import FCLSegError

NVFLARE = "2.9.0"
"""The only version whose private parts are known."""


def check_nvflare() -> None:
    """Refuse another version of NVFlare, before anything of it is replaced."""
    if (found := metadata.version("nvflare")) != NVFLARE:
        raise FCLSegError(
            f"fclseg replaces private parts of NVFlare {NVFLARE}, but {found} is installed: pip install "
            f"nvflare=={NVFLARE}"
        )


@cache
def apply(role: str) -> None:
    """Replace what the process of this role needs, once: ``site`` and ``server`` for a job, ``parent`` for the server's
    own process, which starts the jobs."""
    check_nvflare()
    for patch in _patches(role):
        patch()


def _patches(role: str) -> list[Callable[[], None]]:
    from fclseg.flare.patches.known_events import accept_known_events
    from fclseg.flare.patches.lost_parent import end_without_parent
    from fclseg.flare.patches.stream_timers import share_stream_timers

    if role == "site":
        return [share_stream_timers, accept_known_events, end_without_parent]
    from fclseg.flare.patches.authenticated import trust_tokens
    from fclseg.flare.patches.fast_simulator import speed_up_simulator

    server = [trust_tokens, accept_known_events]
    return {"server": [share_stream_timers, speed_up_simulator, *server], "parent": server}[role]
