"""The ``fclseg`` command. Each sub-command is a module of this package with ``register(subparsers)``."""

import importlib
import os
import shlex
import signal
import sys
from collections.abc import Sequence

from fclseg import __version__
from fclseg.cli.answers import CommandParser, respond
from fclseg.environment import COMMAND
from fclseg.errors import FCLSegError
from fclseg.text import printable

COMMANDS = (
    "start",
    "segment",
    "batch",
    "inbox",
    "evaluate",
    "calibrate",
    "label",
    "finetune",
    "data",
    "pretrain",
    "runs",
    "watch",
    "study",
    "report",
    "bytes",
    "server",
    "site",
    "submit",
    "attack",
    "where",
    "doctor",
)


def build_parser() -> CommandParser:
    parser = CommandParser(
        prog="fclseg",
        description="Federated contrastive pre-training for cardiac MRI segmentation with few labels.",
        epilog="Every sub-command explains itself: fclseg data --help, fclseg pretrain --help, ...",
    )
    parser.add_argument("--version", action="version", version=f"fclseg {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"fclseg.cli.{name}").register(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Bad input gives a one-sentence error and exit code 1, never a traceback."""
    arguments = build_parser().parse_args(argv)
    os.environ[COMMAND] = shlex.join(["fclseg", *(sys.argv[1:] if argv is None else argv)])
    # SIGTERM is handled like Ctrl-C, so that the processes we started do not outlive this command.
    mask = os.umask(0o077)  # runs, caches and tables contain images and names: only this account may read them
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return respond(arguments)
    except FCLSegError as error:
        print(f"fclseg: {printable(error)}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the program that reads our output, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where, why = error.filename or "a file could not be used", error.strerror or error
        print(f"fclseg: {where}: {why}; free space or choose another path", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fclseg: interrupted; finished work is kept, run the same command again to continue", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
        os.umask(mask)
