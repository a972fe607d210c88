"""Writes the reference pages from the code: commands, settings of presets and jobs, a hospital's policy.

    python docs/generate.py          # `make docs` does it by itself

The meaning of a setting is the comment at its field, so that there is one place to write it.
"""

import argparse
import inspect
import os
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path

from fclseg.api import WHERE
from fclseg.cli import build_parser
from fclseg.hospital.policy import Policy
from fclseg.presets import PRESETS
from fclseg.presets.settings import GROUPS

FIELD = re.compile(r"^    (\w+): .*?(?:  # (.*))?$")
NOTE = "\n*This page is generated from the code.*\n"


def comments(kind: type) -> dict[str, str]:
    """The comment at each field of a dataclass, also if it goes on in the next line."""
    found: dict[str, str] = {}
    name = ""
    for line in inspect.getsource(kind).splitlines():
        if match := FIELD.match(line):
            name = match[1]
            found[name] = match[2] or ""
        elif name and (more := re.match(r"^    (?:\) {2})?# (.*)$", line)):
            found[name] = f"{found[name]} {more[1]}".strip()
        elif line.startswith(("    def ", "    @")):
            break
    return found


def cell(value: object) -> str:
    text = "" if value is None else str(value)
    return text.replace("|", "\\|")


def table(head: list[str], rows: list[list[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(value) for value in line) + " |" for line in lines) + "\n"


def default(one: Field) -> str:
    value = "" if one.default is MISSING or one.default is None else one.default
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def commands() -> str:
    """The help of every command and sub-command."""
    parts = ["# Commands\n" + NOTE]

    def add(parser: argparse.ArgumentParser, level: int) -> None:
        parts.append(f"{'#' * level} `{parser.prog}`\n\n```text\n{parser.format_help()}```\n")
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for one in action.choices.values():
                    add(one, min(level + 1, 4))

    add(build_parser(), 2)
    return "\n".join(parts)


def presets() -> str:
    """All settings of a preset, with their values in each one."""
    parts = ["# Settings of a preset\n" + NOTE, "Change one with `--set GROUP.NAME=VALUE`.\n"]
    for group, kind in GROUPS.items():
        meaning = comments(kind)
        rows = [
            [
                f"`{group}.{one.name}`",
                *(getattr(getattr(preset, group), one.name) for preset in PRESETS.values()),
                one.metadata["accepts"].wanted,
                meaning.get(one.name),
            ]
            for one in fields(kind)
        ]
        parts += [f"## {group}\n\n{kind.__doc__}\n", table(["setting", *PRESETS, "accepts", "meaning"], rows)]
    return "\n".join(parts)


def api() -> str:
    """Every name of the Python API. It looks them up when they are used, so that ``automodule`` would not see them."""
    parts = []
    for module, names in WHERE.items():
        for name in names:
            kind = "class" if name[0].isupper() else "function"
            members = "\n   :members:" if kind == "class" else ""
            parts.append(f".. auto{kind}:: {module}.{name}{members}\n")
    parts.append("``fclseg.api.data``\n-------------------\n\n.. automodule:: fclseg.api.data\n   :members:\n")
    head = (
        "# Python API\n"
        + NOTE
        + "\nAll names can be imported from `fclseg.api`, and the command line calls the same ones.\n"
    )
    return "\n".join([head, "```{eval-rst}", *parts, "```\n"])


def dataclass_page(title: str, about: str, kind: type) -> str:
    """One table: name, default and meaning of each field."""
    meaning = comments(kind)
    rows: list[list[object]] = [[f"`{one.name}`", default(one), meaning.get(one.name)] for one in fields(kind)]
    return "\n".join([f"# {title}\n{NOTE}", f"{about}\n", table(["name", "default", "meaning"], rows)])


def write_pages(folder: Path) -> None:
    from fclseg.engine.run_settings import RunSettings

    folder.mkdir(parents=True, exist_ok=True)
    os.environ["COLUMNS"] = "100"  # the width of the help texts
    job = "The `settings` in a job's `config_fed_server.json`; in a study `--job-set NAME=VALUE`."
    policy = "The entry `policy` of a site's `local/fclseg.json`; an unknown or invalid entry stops all work."
    pages = {
        "cli": commands(),
        "api": api(),
        "presets": presets(),
        "job": dataclass_page("Settings of a job", job, RunSettings),
        "policy": dataclass_page("A hospital's policy", policy, Policy),
    }
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # an unchanged page is not built again
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(__file__).parent / "reference" / "generated")
