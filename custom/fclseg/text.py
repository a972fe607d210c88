"""Makes text from outside safe: names of folders, files and sites for terminals and spreadsheets, and what another
party wrote for logs and records. One rule for the latter: bounded, on one line, escaped (``one_line``)."""

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


MOST_CHARACTERS = 300
"""Of a text from another party. Our own sentences are shorter."""


def one_line(text: object, most: int = MOST_CHARACTERS) -> str:
    """What another party wrote, for a log, a record or an error: printable, and cut with a note of its length."""
    whole = str(text)
    shown = printable(whole[:most])  # an escape is longer than its character, so cut again
    return whole if shown == whole else shown[:most] + f"... ({len(whole)} characters)" * (len(whole) > most)


def cell(value: object) -> object:
    """A value for a CSV file. Text that a spreadsheet would execute gets an apostrophe in front of it."""
    if isinstance(value, str):
        value = printable(value)
        return f"'{value}" if value.startswith(FORMULA) else value
    return value
