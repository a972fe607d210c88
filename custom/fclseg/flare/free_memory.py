"""Returns memory that is no longer used to the operating system, so that a process does not grow over a long run.

Networks of many sizes come and go with every round, in many threads. Python collects what refers to itself rarely,
because a process with PyTorch has half a million objects, and glibc keeps what is left behind, in pieces.
"""

import ctypes
import gc
import sys
from collections.abc import Callable
from functools import cache

_modules_frozen = 0


@cache
def _glibc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library has no such function, and needs none
        return None


def return_free_memory() -> None:
    """Takes some milliseconds. Called after each task of a site and after each round of the server."""
    global _modules_frozen
    gc.collect()
    if len(sys.modules) != _modules_frozen:  # what a task imported stays, and need not be looked at after each one
        gc.freeze()
        _modules_frozen = len(sys.modules)
    if trim := _glibc_trim():
        trim(0)
