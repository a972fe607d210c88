"""Makes names from outside (folders, files, sites) safe for terminals and spreadsheets."""

import unicodedata

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Characters that start a formula in a spreadsheet."""


def printable(text: object) -> str:
    """The text on one line, with control characters and direction marks as visible escapes.

    A name with a line feed or an escape sequence could otherwise fake or hide a line of output.
    """
    return "".join(
        character
        if not unicodedata.category(character).startswith(("C", "Z")) or character == " "
        else character.encode("unicode_escape").decode()
        for character in str(text)
    )


def cell(value: object) -> object:
    """A value for a CSV file. Text that a spreadsheet would execute gets an apostrophe in front of it."""
    if isinstance(value, str):
        value = printable(value)
        return f"'{value}" if value.startswith(FORMULA) else value
    return value
