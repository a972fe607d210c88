"""References in a job's configuration, which NVFlare replaces by variables of the environment: refused."""

from collections.abc import Iterator, Mapping

from fclseg.errors import FCLSegError
from fclseg.text import one_line


def check_references(document: object) -> None:
    """Refuse braces in any text. ``{$NAME}`` reads the environment, and ``{name.attribute}`` much more."""
    for text in _texts(document):
        if "{" in text or "}" in text:
            raise FCLSegError(
                f"the job's configuration contains a reference ({one_line(text)}), which could read the environment of "
                "a party: write the value itself"
            )


def _texts(document: object) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, Mapping):
        for name, value in document.items():
            yield str(name)
            yield from _texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from _texts(value)
