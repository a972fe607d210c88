"""The command line of benchmarks that feed damaged input to the package and count what happens."""

import argparse
import signal
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

from fclseg.errors import FCLSegError

Counts = Counter[tuple[str, str]]
"""By kind of input and outcome."""

REFUSED = "refused"
SECONDS = 60
"""Of CPU time, so that a loaded machine does not look like a hang."""


def outcome_of(attempt: Callable[[], str]) -> str:
    """What ``attempt`` returns; otherwise refused, hang, traceback or more than a sentence."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return attempt()
    except FCLSegError as error:
        return REFUSED if "\n" not in str(error) else f"more than a sentence: {error}"
    except TimeoutError:
        return "hang"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {str(error)[:80]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _too_long(number: int, frame: object) -> NoReturn:
    raise TimeoutError


def report(description: str | None, what: str, run: Callable[[int, int], tuple[Counts, list[str]]]) -> int:
    """Run with the options of the command line, print counts and faults, and return the exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    counts, faults = run(arguments.count, arguments.seed)
    for (name, found), count in sorted(counts.items()):
        print(f"{name:<40} {found:<10} {count:>5}")
    print(f"{arguments.count} {what}, {len(faults)} faults")
    print("\n".join(faults))
    return 1 if faults else 0
