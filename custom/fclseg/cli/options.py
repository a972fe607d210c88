"""What several commands read from the command line in the same way."""

from fclseg.errors import FCLSegError


def preset_change(text: str) -> tuple[str, object]:
    """``--set NAME=VALUE``: one value of the preset, replaced."""
    name, equals, value = text.partition("=")
    if not equals:
        raise FCLSegError(f"--set {text} is not of the form NAME=VALUE, for example --set local_epochs=2")
    return name, parse_value(value)


def parse_value(text: str) -> object:
    """A whole number, a number, a tuple of whole numbers (8,16,32) or a word."""
    for kind in (int, float, lambda t: tuple(int(part) for part in t.split(","))):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def positive(value: int, option: str) -> int:
    if value < 1:
        raise FCLSegError(f"{option} must be at least 1, not {value}")
    return value
