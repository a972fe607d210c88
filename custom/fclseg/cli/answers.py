"""What a command answers to a program: with ``--json``, facts on stdout and everything for people on stderr."""

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUN, JSON = "run", "json"


@dataclass(frozen=True)
class Answer:
    """The facts that a command found, as plain values, dataclasses and paths, and its exit code."""

    facts: Any
    code: int = 0


class CommandParser(argparse.ArgumentParser):
    """Adds ``--json`` to every command, where it sets the function that runs it."""

    def set_defaults(self, **values: Any) -> None:
        if RUN in values:
            self.add_argument("--json", action="store_true", help="print the result as JSON, and texts to stderr")
        super().set_defaults(**values)


def respond(arguments: argparse.Namespace) -> int:
    """Run a command and return its exit code."""
    with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
        answer = arguments.run(arguments)
    if not isinstance(answer, Answer):
        answer = Answer({}, answer or 0)
    if arguments.json:
        print(json.dumps(plain(answer.facts), indent=2))
    return answer.code


def plain(value: Any) -> Any:
    """Values that JSON has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(one) for one in value)
    return str(value) if isinstance(value, Path) else value
