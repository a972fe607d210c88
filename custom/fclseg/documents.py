"""Reads JSON and text that may be damaged or written elsewhere. Every problem gives a one-sentence error.

Python's reader has more ways to fail than wrong syntax: a number of thousands of digits, nesting that is too deep.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fclseg.errors import DataError
from fclseg.files import whole_lines

UNUSABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""Errors from using a document that is valid JSON but does not have the expected content."""


def read_text(path: Path) -> str:
    """A text file with or without a byte order mark."""
    try:
        if path.exists() and not path.is_file():  # reading a named pipe would wait forever
            raise DataError(f"{path}: is not a regular file; check the path")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not a text file; save it as UTF-8") from None


def parse_json(text: str, source: object) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{source}: is not valid JSON (line {error.lineno}: {error.msg}); correct it") from None
    except RecursionError:
        raise DataError(f"{source}: is nested too deeply to be read; correct it") from None
    except ValueError:  # Python refuses whole numbers of more than 4300 digits
        raise DataError(f"{source}: has a number that is too long to be read; correct it") from None


def read_json(path: Path) -> Any:
    return parse_json(read_text(path), path)


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """One object per line. An incomplete last line is left out."""
    lines = [parse_json(line, path) for line in whole_lines(path)]
    if not all(isinstance(line, dict) for line in lines):
        raise DataError(f"{path}: is damaged (a line is not a JSON object); restore it from a backup")
    return lines


@contextmanager
def understood(source: object, advice: str) -> Iterator[None]:
    """Context manager for code that uses a document. A missing entry or a wrong type gives a one-sentence error."""
    try:
        yield
    except UNUSABLE as error:
        what = " ".join(str(error).split())[:80] or type(error).__name__
        raise DataError(f"{source}: is damaged ({what}); {advice}") from None
