"""One sentence instead of a traceback when a bundle stops on bad input.

``monai.bundle run`` wraps what goes wrong inside a config in its own errors; the sentence is at the bottom of them.
"""

import sys
from types import TracebackType

from fclseg.errors import FCLSegError


def user_error(error: BaseException | None) -> FCLSegError | None:
    """The sentence for the user in a chain of exceptions, or None when it is a real fault of the program."""
    while error is not None:
        if isinstance(error, FCLSegError):
            return error
        error = error.__cause__ or error.__context__
    return None


def speak_plainly() -> None:
    """From now on an uncaught FCLSegError prints its sentence; the exit code stays 1. For command lines only."""
    usual = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if (sentence := user_error(error)) is not None:
            print(f"fclseg: {sentence}", file=sys.stderr)
        elif issubclass(kind, KeyboardInterrupt):
            print("fclseg: interrupted; the same command continues where this one stopped", file=sys.stderr)
        else:
            usual(kind, error, trace)

    sys.excepthook = hook
