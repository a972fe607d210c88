"""Command line options that several commands share."""

from fclseg.errors import FCLSegError


def preset_change(text: str) -> tuple[str, object]:
    """``--set NAME=VALUE``: replaces one value of the preset."""
    return named_value(text, "--set", "local_epochs=2")


def parse_value(text: str) -> object:
    """A whole number, a number, a tuple of whole numbers (8,16,32), true, false or a word."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float, lambda t: tuple(int(part) for part in t.split(","))):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def named_value(text: str, option: str, example: str) -> tuple[str, object]:
    """Splits ``NAME=VALUE``, the form that several options take."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise FCLSegError(f"{option} {text} is not of the form NAME=VALUE, for example {option} {example}")
    return name, parse_value(value)


def positive(value: int, option: str) -> int:
    if value < 1:
        raise FCLSegError(f"{option} must be at least 1, not {value}")
    return value
