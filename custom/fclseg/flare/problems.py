"""What went wrong at a site: all of it in a file of the site, and only its kind in the log and on the wire.

Error messages name files, and file names may name patients. NVFlare can send log files to the server, so nothing but
the kind of a problem is logged; the whole story is in ``problems.log`` in the site's folder of runs.
"""

import os
import time
import traceback
from pathlib import Path

from fclseg.errors import PublicError
from fclseg.files import private_folder

FILE = "problems.log"


def note_problem(runs: Path, what: str, error: BaseException) -> None:
    """Add the error with its whole story to the site's own file, as well as can be: the disk may be the problem."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    story = "".join(traceback.format_exception(error))
    try:
        private_folder(runs)
        descriptor = os.open(runs / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{stamp} {what}\n{story}\n")


def public_sentence(error: BaseException) -> str:
    """What the server may know of a problem at a site."""
    if isinstance(error, PublicError):
        return str(error)
    return f"{type(error).__name__}, explained in {FILE} of the site's folder of runs"
