"""Names from outside (folders, files, sites) made fit for a terminal and for a spreadsheet."""

import unicodedata

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet takes for the beginning of a formula."""


def printable(text: object) -> str:
    """The text on one line, with control characters and direction marks as visible escapes.

    A name with a line feed or an escape sequence in it could otherwise forge a line of output, or hide one.
    """
    return "".join(
        character
        if not unicodedata.category(character).startswith(("C", "Z")) or character == " "
        else character.encode("unicode_escape").decode()
        for character in str(text)
    )


def cell(value: object) -> object:
    """A value for a CSV file: a text that a spreadsheet would execute gets an apostrophe in front of it."""
    if isinstance(value, str):
        value = printable(value)
        return f"'{value}" if value.startswith(FORMULA) else value
    return value
