"""One sentence instead of a traceback when a bundle stops on bad input.

``monai.bundle run`` wraps errors inside a config in its own errors. Our sentence is at the end of that chain.
"""

import sys
from types import TracebackType

from fclseg.errors import FCLSegError


def user_error(error: BaseException | None) -> FCLSegError | None:
    """The sentence for the user in a chain of exceptions, or None if it is a bug in the program."""
    while error is not None:
        if isinstance(error, FCLSegError):
            return error
        error = error.__cause__ or error.__context__
    return None


def speak_plainly() -> None:
    """Make an uncaught FCLSegError print its sentence only; the exit code stays 1. For command lines only."""
    usual = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if (sentence := user_error(error)) is not None:
            print(f"fclseg: {sentence}", file=sys.stderr)
        elif issubclass(kind, KeyboardInterrupt):
            print("fclseg: interrupted; run the same command again to continue", file=sys.stderr)
        else:
            usual(kind, error, trace)

    sys.excepthook = hook
