"""Returns memory that is no longer used to the operating system, so that a process does not grow over a long run.

Networks of many sizes come and go with every round, in many threads. Python collects what refers to itself rarely,
because a process with PyTorch has half a million objects, and glibc keeps what is left behind, in pieces.
"""

import ctypes
import gc
from collections.abc import Callable
from functools import cache


@cache
def _prepare() -> Callable[[int], int] | None:
    """Done once: what has been imported stays, and is not looked at again. Returns glibc's function."""
    gc.collect()
    gc.freeze()
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library has no such function, and needs none
        return None


def return_free_memory() -> None:
    """Takes some milliseconds. Called after each task of a site and after each round of the server."""
    trim = _prepare()
    gc.collect()
    if trim:
        trim(0)
