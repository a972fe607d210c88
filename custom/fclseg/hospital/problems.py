"""Errors at a site: the details go to a file of the site; only the type goes to the log and the server.

Error messages contain file names, and file names may contain patient names. NVFlare can send log files to the server,
so only the type of an error is logged. The full error is in ``problems.log`` in the site's folder of runs.
"""

import os
import time
import traceback
from pathlib import Path

from fclseg.errors import PublicError
from fclseg.files import private_folder

FILE = "problems.log"
MOST_BYTES = 10_000_000
"""A larger file gets the ending ``.1`` and replaces the one that had it, so that a site that fails for weeks does not
fill its disk."""


def note_problem(runs: Path, what: str, error: BaseException) -> None:
    """Append the full error to the site's own file. This is best effort, because the disk may be the problem."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    story = "".join(traceback.format_exception(error))
    try:
        private_folder(runs)
        if (runs / FILE).exists() and (runs / FILE).stat().st_size > MOST_BYTES:
            os.replace(runs / FILE, runs / f"{FILE}.1")
        descriptor = os.open(runs / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{stamp} {what}\n{story}\n")


def public_sentence(error: BaseException) -> str:
    """What the server may learn about an error at a site."""
    if isinstance(error, PublicError):
        return str(error)
    return f"{type(error).__name__}, see {FILE} in the site's folder of runs"
