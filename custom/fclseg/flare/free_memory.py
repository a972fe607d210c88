"""Returns memory that is no longer used to the operating system, so that a process does not grow over a long run.

Networks of many sizes come and go with every round, in many threads. glibc keeps what they leave behind, in pieces.
"""

import ctypes
from collections.abc import Callable
from functools import cache


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library has no such function, and needs none
        return None


def return_free_memory() -> None:
    """Takes some milliseconds. Called after each task of a site and after each round of the server."""
    if trim := _trim():
        trim(0)
